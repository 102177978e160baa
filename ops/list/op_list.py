#!/usr/bin/env python3
"""The list of ops, modules and optimizers, made of their declarations, of the heads above these and of the rows of
shaders/elementwise.def (docs/design.md says which keys a head has).

    op_list.py table LIST.inc LIST.json ROWS.inc OUT.d    at build time: rows for op_list.cpp, all of it for other languages,
                                                           and rows of the op table
    op_list.py write                                       ops/elementwise/rows.h, and the parts of pages that are made of the list
"""
import glob
import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True
sys.path += [str(ROOT / "docs/site"), str(ROOT / "shaders/compiler")]
import headers  # noqa: E402
import manifest  # noqa: E402

DTYPES = {"none": [], "float": ["f32", "f16", "bf16"], "i32": ["i32"], "float i32": ["f32", "f16", "bf16", "i32"],
          "any": ["f32", "f16", "bf16", "i32", "u8"]}
DEFAULTS = {"torch": None, "autocast": "", "in": "float", "order": "2", "try": ""}  # torch: the op's own name
INPUTS = re.compile(r"\b(?:x|constant|learned|index|mask)\(\{[^{}]*\}[^{}()]*\)")  # as tests/op_table/op_table.h makes them
MADE = "ops/elementwise/rows.h"
MARKS = ("<!-- made by ops/list/op_list.py write -->\n\n", "\n<!-- until here -->")


class HeadError(Exception):
    pass


def facts(text, keys, where):
    """Returns the fields of a head, `key: value   key: value`."""
    fields = dict(re.findall(r"(\w+): (.*?)(?:   |$)", text))
    if set(fields) - set(keys) or "   ".join(f"{k}: {v}" for k, v in fields.items()) != text:
        raise HeadError(f"{where}: a head is `//! key: value   key: value` of {', '.join(keys)}, got '{text}'")
    return fields


def split(text):
    """Splits at the commas outside of brackets."""
    parts, depth = [""], 0
    for c in text:
        depth += (c in "([{<") - (c in ")]}>")
        if c == "," and not depth:
            parts.append("")
        else:
            parts[-1] += c
    return [part.strip() for part in parts if part.strip()]


def argument(text, of_type=""):
    """`int axis = -1` -> {name, type, default}; a field behind a comma has the type of the one before."""
    match = re.fullmatch(r"(.*?[\s&*>])??(\w+)(?: ?= ?(.*))?", text)
    if not match:
        raise HeadError(f"the argument '{text}' has no name")
    found = {"name": match[2], "type": (match[1] or of_type).strip()}
    return found | ({"default": match[3]} if match[3] is not None else {})


def arguments(text, structs):
    """Returns the arguments of a function; those of a struct of options have its fields as `keywords`."""
    inside = re.sub(r"\s+", " ", text[text.index("(") + 1:])
    depth, end = 1, 0
    while depth:
        depth += (inside[end] == "(") - (inside[end] == ")")
        end += 1
    found = [argument(part) for part in split(inside[:end - 1])]
    for a in found:
        struct = re.sub(r"const|[& ]", "", a["type"])
        if struct in structs and struct.endswith("Options"):
            a["keywords"] = structs[struct]
    return found


def prose(d):
    return re.sub(r"\s+", " ", " ".join(line.lstrip("/ ") for line in d.comment()))


class Tree:
    """The installed headers of some rooms, and the definitions of their sources."""

    def __init__(self, rooms):
        self.read, self.structs, self.enums, self.bodies, self.launchers = {}, {}, {}, {}, {"launch"}
        paths = [p for p in headers.installed(ROOT) if p.split("/")[0] in rooms and p != MADE]
        sources = [p for room in [*rooms, "core/tensor"] for p in sorted(glob.glob(f"{ROOT}/{room}/**/*.cpp", recursive=True))]
        self.files = [str(ROOT / p) for p in paths] + sources
        for path in paths:
            self.read[path] = headers.read((ROOT / path).read_text())
            for d in self.read[path].found:
                owner = d.scope.owner.names[0] if d.scope.owner else ""
                if d.kind == "field" and owner and d.is_public:
                    fields = self.structs.setdefault(owner, [])
                    code = " ".join(re.sub(r"//.*", "", line).strip() for line in self.read[path].lines[d.line:d.end + 1])
                    for part in split(code.strip("; ")):
                        fields.append(argument(part, fields[-1]["type"] if fields else ""))
                elif d.kind == "value":
                    self.enums.setdefault(owner, []).extend(d.names)
        for source in sources:
            self.define(source, Path(source).read_text())

    def define(self, source, text):
        """Notes the functions and objects of a source: clang-format begins them, and nothing within, at column 0."""
        hidden = "".join(re.findall(r"^namespace \{\n.*?^\}  // namespace$", text, re.S | re.M))
        name = ""
        for line in text.split("\n"):
            if re.match(r"[A-Za-z]", line) and not re.match(r"namespace|using|template|requires", line):
                match = re.match(r"(?:struct|class) (\w+)", line) or re.search(r"(\w+::\w+|\w+)(?:\(|(?:\[\])? = )", line)
                name = match[1].removeprefix("detail::") if match else ""
                self.bodies.setdefault(name, []).append([source, line in hidden, ""])
                if "(const char* kernel" in line:
                    self.launchers.add(name)
            elif line.startswith("}  // namespace"):
                name = ""
            if name:
                self.bodies[name][-1][2] += line + "\n"

    def text(self, *names):
        return "".join(text for name in names for _, _, text in self.bodies.get(name, []))

    def kernels(self, bodies, stops, seen):
        """Returns the kernels that functions and Ops launch, without those of the ops that they call."""
        found = set()
        for source, _, text in bodies:
            found |= {kernel for f, kernel in re.findall(r'(\w+)\(\s*"(\w+)"', text) if f in self.launchers}
            for name in set(re.findall(r"\w+", text)) - stops:
                here = [b for b in self.bodies.get(name, []) if b[0] == source]
                others = here or [b for b in self.bodies.get(name, []) if not b[1]]
                if (source, name) not in seen:
                    seen.add((source, name))
                    found |= self.kernels(others, stops, seen)
        return found

    def definition(self, op):
        """Returns the bodies of the op's function, if possible of this one of several of its name."""
        shared = [b for b in self.bodies.get(op["function"], []) if not b[1]]
        types = [a["type"] for a in op["arguments"]]
        return [b for b in shared if [a["type"] for a in arguments(b[2], {})] == types] or shared


def rows():
    """Returns (macro, name, facts, public comment above, public comment behind) of each row of elementwise.def."""
    found, block = [], []
    for number, line in enumerate((ROOT / "shaders/elementwise.def").read_text().split("\n"), 1):
        if line.startswith("/// "):
            block.append(line[4:])
        elif match := re.match(r"(UNARY|UNARY_AB|BINARY|BINARY_FLOAT|COMPARE)\(\d+, (\w+),", line):
            head = re.search(r"  //! (.*?)(?=  ///|$)", line)
            known = facts(head[1], ("torch", "autocast"), f"shaders/elementwise.def:{number}") if head else {}
            doc = re.search(r"  /// (.*)", line)
            found.append((match[1], match[2], known, " ".join(block), doc[1] if doc else ""))
            block = []
    return found


def elementwise_ops():
    found = []
    for macro, name, known, block, doc in rows():
        if macro == "UNARY_AB":
            continue  # they have numbers, so they are declared in ops.h
        known = {"in": "float" if macro == "BINARY_FLOAT" else "any", "order": "0" if macro == "COMPARE" else "2",
                 "autocast": "" if macro == "COMPARE" else "keep"} | known
        text = f"Tensor {name}(Tensor {'x' if macro == 'UNARY' else 'a, Tensor b'})"
        found.append(entry(name, name, MADE, text, " ".join(filter(None, [block, doc])), known, {}))
        found[-1]["macro"] = macro.removesuffix("_FLOAT").lower()
    return found


def entry(name, function, header, text, doc, known, structs):
    known = DEFAULTS | known
    result = text[:text.index(function + "(")].strip()
    torch = {"none": ""}.get(known["torch"], known["torch"] if known["torch"] is not None else name)
    return {"name": name, "function": function, "header": header, "signature": text, "doc": doc,
            "arguments": arguments(text, structs), "returns": structs.get(result, result),
            "dtypes": DTYPES[known["in"]], "in": known["in"], "autocast": known["autocast"], "torch": torch,
            "order": int(known["order"]), "try": known["try"]}


def ops(tree):
    """Returns all public ops. HeadError: a function that returns tensors has no head, or two ops have one name."""
    found = []
    tensors = {s for s, fields in tree.structs.items() if any("Tensor" in f["type"] for f in fields)}
    for path, reader in tree.read.items():
        if not path.startswith("ops/"):
            continue
        queue = []  # the names that the last head has for the next functions
        lines = sorted([(line, text) for line, text in reader.heads] + [(d.line, d) for d in reader.found], key=lambda l: l[0])
        for line, item in lines:
            where = f"{path}:{line + 1}"
            if isinstance(item, str):
                if queue:
                    raise HeadError(f"{where}: no functions for {' '.join(queue)} of the head above")
                known = facts(item, ("op", *DEFAULTS), where)
                queue = known.pop("op").split()
                continue
            result = re.match(r"(?:inline )?\s*(Tensor|std::vector<Tensor>|\w+) \w+\(", item.text)
            is_op = item.kind == "function" and item.scope.kind == "namespace" and item.scope.name == "rw" and \
                result and (result[1] in tensors or "Tensor" in result[1])
            if not is_op:
                continue
            if not queue:
                raise HeadError(f"{where}: {item.names[0]} has no head `//! op: NAME` (docs/design.md)")
            name, function = queue.pop(0), item.names[0]
            if name == "-":
                continue  # another form of an op, or a help beside one
            if function not in name and not name.startswith(function):
                raise HeadError(f"{where}: the head of {function} names {name}")
            text = re.sub(r"^inline |\s*\{\s*\}$", "", re.sub(r"\s+", " ", item.text).strip())
            found.append(entry(name, function, path, text, prose(item), known, tree.structs))
        if queue:
            raise HeadError(f"{path}: no functions for {' '.join(queue)} of the last head")
    found += elementwise_ops()
    names = [op["name"] for op in found]
    if twice := sorted({n for n in names if names.count(n) > 1}):
        raise HeadError(f"two ops are called {', '.join(twice)}")
    for op in found:
        if op["try"] and not (op["try"].startswith(op["function"] + "(") and INPUTS.search(op["try"])):
            raise HeadError(f"{op['name']}: try is a call of {op['function']} with inputs of the op table, got {op['try']}")
        if op["autocast"] not in ("", "low", "f32", "keep", *names):
            raise HeadError(f"{op['name']}: autocast is low, f32, keep, or an op whose rule it follows, not {op['autocast']}")
    return sorted(found, key=lambda op: op["name"])


def classes(tree, room, root, wrapped):
    """Returns the classes of a room that derive from `root`, and aliases of them, as `ops` does. An alias of a template
    around one of the ops `wrapped` is made with the arguments of this op after its tensor."""
    bases, found = {}, []
    after_x = {op["function"]: op["arguments"][1:] for op in wrapped}
    for path, reader in tree.read.items():
        for d in reader.found if path.startswith(room) else []:
            base = re.search(r" : public (\w+)", d.text) or re.match(r"using \w+ = (\w+)<", d.text)
            if base and d.scope.kind == "namespace":
                bases[d.names[0]] = (base[1], path, reader, d)
    for name, (base, path, reader, d) in bases.items():
        line = [name]
        while line[-1] in bases:
            line.append(bases[line[-1]][0])
        made = [m for m in reader.found if m.scope.owner is d and m.names == [name] and m.is_public
                and "= delete" not in m.text and f"({name}&&)" not in m.text]
        is_base = any(" protected:" in reader.lines[d.line:m.line] for m in made)
        if line[-1] != root or d.text.startswith("template") or is_base:
            continue
        after = max([o.end for o in reader.found if o.end < d.line], default=-1)
        heads = [facts(text, ("torch",), path) for number, text in reader.heads if after < number < d.line]
        torch = heads[-1]["torch"] if heads else name
        text = tree.text(*(f"{c}::{f}" for c in line for f in (c, "make_cell")))
        own = re.findall(r'register_(parameter|channels_last|buffer|module)\("(\w+)"( \+)?', text)
        names = {kind: list(dict.fromkeys(n + "*" * bool(more) for k, n, more in own if k in kinds))
                 for kind, kinds in (("parameters", ("parameter", "channels_last")), ("buffers", "buffer"), ("modules", "module"))}
        alias = re.match(r"using \w+ = \w+<(?:rw::)?(\w+)", d.text)
        constructors = [after_x[alias[1]]] if alias and alias[1] in after_x else [arguments(m.text, tree.structs) for m in made] or [[]]
        found.append({"name": name, "header": path, "doc": prose(d), "torch": "" if torch == "none" else torch,
                      "constructors": constructors} | names)
    return sorted(found, key=lambda c: c["name"])


def everything():
    """Returns (the whole list, the files that it is made of)."""
    tree = Tree(["ops", "nn", "optim"])
    kernels = {}
    shaders = sorted(glob.glob(f"{ROOT}/shaders/*/*.comp"))
    for path in shaders:
        read = manifest.parse_manifest(Path(path).read_text())
        kernels[Path(path).stem] = {"types": read.types, "buffers": [[b.name, b.type, b.access] for b in read.buffers]}
    found = ops(tree)
    stops = {op["function"] for op in found}
    for op in found:
        macro = op.pop("macro", None)
        bodies = tree.bodies[macro] if macro else tree.definition(op)
        op["kernels"] = sorted(tree.kernels(bodies, stops - {op["function"]}, set()))
    used = {k for op in found for k in op["kernels"]}
    return {"ops": found, "modules": classes(tree, "nn", "Module", found),
            "optimizers": classes(tree, "optim", "Optimizer", found),
            "enums": tree.enums, "kernels": {k: v for k, v in kernels.items() if k in used}}, tree.files + shaders


def inc(found):
    return "".join("{%s, %d},\n" % (", ".join(json.dumps(op[key]) for key in ("name", "signature", "torch", "in", "autocast")),
                                    op["order"]) for op in found["ops"])


def table_rows(found):
    """Returns rows of the op table: calls in which the inputs have become in[0], in[1], ..."""
    def row(op):
        inputs = INPUTS.findall(op["try"])
        number = iter(range(len(inputs)))
        call = INPUTS.sub(lambda _: f"in[{next(number)}]", op["try"])
        return f't.row("{op["name"]}", {{{", ".join(inputs)}}}, [](const Tensors& in) {{ return {call}; }});\n'
    return "".join(row(op) for op in found["ops"] if op["try"])


def declarations():
    """Returns the header of MADE, before clang-format."""
    text = "// Elementwise ops of tensors only, one for each row of shaders/elementwise.def, of which `ops/list/op_list.py write`\n" \
           "// makes this file.\n#pragma once\n\n#include \"../../core/tensor/tensor.h\"\n\nnamespace rw {\n"
    for macro, name, _, block, doc in rows():
        if macro != "UNARY_AB":
            text += f"\n// {block}\n" if block else ""
            text += f"Tensor {name}(Tensor {'x' if macro == 'UNARY' else 'a, Tensor b'});" + (f"  // {doc}\n" if doc else "\n")
    return text + "\n}  // namespace rw\n"


def parity(found):
    """Returns the part of the page that is made of the list."""
    named = {kind: sorted({(c.get("function", c["name"]), c["torch"]) for c in found[kind]}) for kind in ("ops", "modules", "optimizers")}
    code = lambda names: textwrap.fill(", ".join(f"`{n}`" for n in names) + ".", 120) + "\n"  # noqa: E731
    text = "| PyTorch | Rewind |\n|---|---|\n"
    for kind in named:
        text += "".join(f"| `{torch}` | `{name}` |\n" for name, torch in sorted(named[kind], key=lambda n: n[1]) if torch not in ("", name))
    for kind, all_of in named.items():
        text += f"\n{kind.capitalize()} with PyTorch's names:\n" + code(n for n, torch in all_of if torch == n)
        text += "\nThose of Rewind alone:\n" + code(n for n, torch in all_of if not torch)
    once = [op["name"] for op in found["ops"] if op["order"] == 1]
    return text + "\nThe gradients of these cannot be differentiated:\n" + code(once)


def rules(found):
    """Returns the ops of each rule of Autocast."""
    listed = {rule: ", ".join(f"`{op['name']}`" for op in found["ops"] if op["autocast"] == rule) for rule in ("low", "f32", "keep")}
    return "\n".join(textwrap.fill(f"- `{rule}`: {ops}", 120, subsequent_indent="  ") for rule, ops in listed.items()) + "\n"


def pages(found):
    """Returns each page that has a part made of the list, as it must be."""
    made = {"docs/from-pytorch.md": parity(found), "docs/mixed-precision.md": rules(found)}
    for page in made:
        before, rest = (ROOT / page).read_text().split(MARKS[0])
        made[page] = before + MARKS[0] + made[page] + MARKS[1] + rest.split(MARKS[1])[1]
    return made


def write_if_new(path, text):
    path = Path(path)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def main():
    found, files = everything()
    if sys.argv[1] == "table":
        write_if_new(sys.argv[2], inc(found))
        write_if_new(sys.argv[3], json.dumps(found, indent=1) + "\n")
        write_if_new(sys.argv[4], table_rows(found))
        made = [str(ROOT / "shaders/elementwise.def"), headers.__file__, manifest.__file__, __file__]
        Path(sys.argv[5]).write_text(f"{sys.argv[2]}: {' '.join(files + made)}\n")
    else:
        for page, text in pages(found).items():
            write_if_new(ROOT / page, text)
        formatted = subprocess.run(["clang-format-14", f"--assume-filename={MADE}"], input=declarations(), text=True,
                                   capture_output=True, check=True, cwd=ROOT).stdout
        write_if_new(ROOT / MADE, formatted)


if __name__ == "__main__":
    main()
