#!/usr/bin/env python3
"""Checks that no two files define a type of one name in one namespace: the linker takes such types for
one, and memory is corrupted where both are used. Usage: check_names.py ROOT"""

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
    count, broken = 0, []
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
                for name in types(file.read_text()):
                    where.setdefault(name, []).append(path)
        broken += [f"{name} is defined in {' and '.join(paths)}" for name, paths in sorted(where.items())
                   if len(paths) > 1]
    return count, sorted(set(broken))


def self_test():
    """The check must find planted names, and nothing else."""
    files = {
        "core/a.h": "namespace rw {\nclass Other;\nclass Deep { class Inner; };\nclass Deep::Inner {};\nstruct Twice { struct Step {}; };\ntemplate <class Once> void f();\n}",
        "core/b.h": "namespace rw {\nclass Twice final : public Base { int x; };\nstruct Other {};\n}",
        "core/c.cpp": "namespace rw {\nnamespace {\nstruct Other {};\n}\nstruct Step f(struct Other o) { return {}; }\n"
                      "void g() { struct Twice {}; } // struct Twice {}\n}",
        "core/d.h": "namespace rw::inner {\nstruct Twice {};\nenum class Kind { a };\n}",
        "io/e.h": "namespace rw {\nnamespace inner { enum class Kind : int { b }; }\nconst char* s = \"struct Other {\";\n}",
    }
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        found = duplicates(root)[1]
    expected = ["rw::Twice is defined in core/a.h and core/b.h",
                "rw::inner::Kind is defined in core/d.h and io/e.h"]
    if found != expected:
        sys.exit(f"the check of names is wrong about its planted ones: {found}")


self_test()
files, found = duplicates(Path(sys.argv[1]))
if found or not files:
    print("\n".join(found))
    sys.exit(f"{len(found)} types share their name with another")
print("every type has a name of its own")
