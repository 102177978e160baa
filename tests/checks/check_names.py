#!/usr/bin/env python3
"""Checks that no two files define a type of one name in one namespace: the linker takes such types for one, and memory is
corrupted where both are used; and that a function of an anonymous namespace hides none that another file of its room
calls, since files of a room are compiled together (packaging/units.py) in whatever groups. Usage: check_names.py ROOT"""

import re
import sys
import tempfile
from pathlib import Path

LIBRARY = ["core", "ops", "planner", "backends", "data", "nn", "models", "optim", "io", "dist", "trainer"]  # one program holds all of them
PROGRAMS = ["apps", "examples", "tools", "benchmarks", "tests"]
NOISE = re.compile(r'//[^\n]*|/\*.*?\*/|R"\((?:.|\n)*?\)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.S)
TOKEN = re.compile(r"\b(namespace|struct|class|union|enum|template|using|typedef)\b|[{};]")
NAME = re.compile(r"\s*(?:class\s+|struct\s+)?(?:alignas\([^)]*\)\s*)?(?:\[\[[^\]]*\]\]\s*)?([A-Za-z_]\w*)(\s*(?:<|::))?")


def types(text):
    """Returns the qualified names of the types that a file defines in named namespaces, not inside functions or types."""
    text = NOISE.sub(lambda m: "\n" * m.group().count("\n"), text)
    text = re.sub(r"^[ \t]*#.*(?:\\\n.*)*", "", text, flags=re.M)
    stack, found = [], set()  # of open braces: a namespace's name, "" for an anonymous one, None for others
    pending = None
    for token in TOKEN.finditer(text):
        word = token.group()
        if word == "namespace":
            name = re.match(r"\s*(?:inline\s+)?([\w:]*)", text[token.end():])
            pending = ("namespace", name.group(1))
        elif word in ("struct", "class", "union", "enum"):
            before = text[:token.start()].rstrip()
            if pending is None and not before.endswith(("<", ",")):  # not a template's parameter
                name = NAME.match(text[token.end():])
                if name and not name.group(2):  # no specialisation, no member of a type
                    pending = ("type", name.group(1))
        elif word == "{":
            kind, name = pending or (None, None)
            rest = stack if all(s is not None for s in stack) else None
            if kind == "type" and rest is not None and "" not in rest:
                opening = text[:token.start()].rstrip()
                if not opening.endswith(")"):  # a function that returns the type
                    found.add("::".join(rest + [name]))
            stack.append(name if kind == "namespace" else None)
            pending = None
        elif word == "}":
            if stack:
                stack.pop()
            pending = None
        elif word == ";":
            pending = None
    return found


def duplicates(root):
    """Returns (files read, a line for each name that is defined twice)."""
    count, broken, of_file = 0, [], {}
    for program in [[]] + [[p] for p in PROGRAMS]:
        where = {}
        for folder in LIBRARY + program:
            for file in sorted((root / folder).rglob("*")):
                path = file.relative_to(root).as_posix()
                if file.suffix not in (".h", ".cpp") or path.startswith("tests/install/"):
                    continue
                # Programs of one folder are linked separately, so only their headers meet.
                if program and folder in program and folder != "tests" and file.suffix == ".cpp":
                    continue
                count += 1
                if path not in of_file:
                    of_file[path] = types(file.read_text())
                for name in of_file[path]:
                    where.setdefault(name, []).append(path)
        broken += [f"{name} is defined in {' and '.join(paths)}" for name, paths in sorted(where.items())
                   if len(paths) > 1]
    return count, sorted(set(broken))


FUNCTION = re.compile(r"^(?!(?:return|else|if|for|using|case|template)\b)[A-Za-z_][\w:<>,&*\[\] ]*[ *&](\w+)\(([^;{]*)\)[\w ]*\{", re.M)


def parameters(text):
    """Returns the types of a function's parameters."""
    return tuple(re.sub(r"\s+\w+\s*(=.*)?$", "", p.strip()) for p in re.split(r",(?![^<(]*[>)])", text))


def calls(name, text):
    """Says whether the text calls a free function of this name that it does not declare."""
    used = [m.start() for m in re.finditer(rf"(?<![\w.>:]){name}\(", text)]
    declared = re.search(rf"auto &?{name} =|^(?! *return\b)[\w:<>,&*\[\] ]*[ *&:~]{name}\(", text, re.M)
    return not declared and any(re.search(r"\breturn $|[^\w>&*] $|[^ ]$", text[max(0, at - 12):at]) for at in used)


def hidden(root):
    """Returns a line for each function of an anonymous namespace that the calls of another file of its room would mean."""
    broken = []
    for room in LIBRARY:
        texts, called, functions = {}, {}, {}
        for file in sorted((root / room).rglob("*.cpp")):
            text = re.sub(r"//(?! namespace$)[^\n]*", "", file.read_text(), flags=re.M)
            path, space = file.relative_to(root).as_posix(), re.search(r"^namespace ([\w:]+) \{", text, re.M)
            texts[path] = (space and space.group(1), text)
            called[path] = set(re.findall(r"\w+(?=\()", text))
            for part in re.findall(r"^namespace \{\n(.*?)^\}  // namespace$", text, re.S | re.M):
                for name, types in FUNCTION.findall(part):
                    functions.setdefault((texts[path][0], name), []).append((path, parameters(types)))
        for (space, name), places in functions.items():
            own = {path for path, _ in places}
            for path, (other, text) in texts.items():
                if path not in own and other == space and name in called[path] and calls(name, text):
                    broken.append(f"{name} of {min(own)} hides the one that {path} calls")
            if len(set(places)) > len({types for _, types in places}):
                broken.append(f"{name} is defined alike in {' and '.join(sorted(own))}")
    return sorted(broken)


def self_test():
    """The check must find planted names, and nothing else."""
    files = {
        "core/a.h": "namespace rw {\nclass Other;\nclass Deep { class Inner; };\nclass Deep::Inner {};\nstruct Twice { struct Step {}; };\ntemplate <class Once> void f();\n}",
        "core/b.h": "namespace rw {\nclass Twice final : public Base { int x; };\nstruct Other {};\n}",
        "core/c.cpp": "namespace rw {\nnamespace {\nstruct Other {};\n}\nstruct Step f(struct Other o) { return {}; }\n"
                      "void g() { struct Twice {}; } // struct Twice {}\n}",
        "core/d.h": "namespace rw::inner {\nstruct Twice {};\nenum class Kind { a };\n}",
        "ops/f.cpp": "namespace rw {\nnamespace {\nint near(int a) {\n}\nvoid same(float x) {\n}\n}  // namespace\n}",
        "ops/g.cpp": "namespace rw {\nnamespace {\nvoid same(int x) {\n}\n}  // namespace\nint h() {\n  return near(2);\n}\n}",
        "ops/h.cpp": "namespace rw {\nnamespace {\nvoid same(float y) {\n}\n}  // namespace\nvoid k() {\n  Vector near(2);\n  x.near(3);\n}\n}",
        "io/e.h": "namespace rw {\nnamespace inner { enum class Kind : int { b }; }\nconst char* s = \"struct Other {\";\n}",
    }
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        found = duplicates(root)[1] + hidden(root)
    expected = ["rw::Twice is defined in core/a.h and core/b.h",
                "rw::inner::Kind is defined in core/d.h and io/e.h",
                "near of ops/f.cpp hides the one that ops/g.cpp calls",
                "same is defined alike in ops/f.cpp and ops/g.cpp and ops/h.cpp"]
    if found != expected:
        sys.exit(f"the check of names is wrong about its planted ones: {found}")


self_test()
files, found = duplicates(Path(sys.argv[1]))
found += hidden(Path(sys.argv[1]))
if found or not files:
    print("\n".join(found))
    sys.exit(f"{len(found)} names mean two things")
print("every name means one thing")
