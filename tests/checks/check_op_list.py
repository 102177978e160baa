#!/usr/bin/env python3
"""Checks the list of ops (ops/list/op_list.py): every public op has a head, names are unique, and what is made of the list and
stands in the tree is as the list makes it. Where PyTorch is installed, its names must exist. Usage: check_op_list.py ROOT"""

import importlib
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "ops/list"))
sys.dont_write_bytecode = True
import op_list  # noqa: E402

OP = re.compile(r'\{\s*(?:\.name = )?"(\w+)",\s*(?:\.forward = )?\w*_forward\b')  # the beginning of an Op
COPIED = "cast"  # also the name of a copy that an optimizer keeps, in whose place plans may have seen a cast


def self_test():
    """The list must refuse planted heads, and read a right one."""
    def read(text):
        tree = object.__new__(op_list.Tree)
        tree.structs, tree.read = {}, {"ops/a.h": op_list.headers.read(f"// A.\n\nnamespace rw {{\n{text}\n}}  // namespace rw\n")}
        return op_list.ops(tree)

    found = next(op for op in read("//! op: soft   torch: none   order: 0\n// Soft.\nTensor soft(Tensor x, int axis = -1);")
                 if op["name"] == "soft")
    assert found["arguments"][1] == {"name": "axis", "type": "int", "default": "-1"} and found["doc"] == "Soft.", found
    inline = next(op for op in read("//! op: both   try: both(x({2}), 1, mask({3, 4}, 2))\n"
                                    "inline Tensor both(Tensor x, int n, Tensor m) {\n  return x;\n}") if op["name"] == "both")
    assert inline["signature"] == "Tensor both(Tensor x, int n, Tensor m)", inline
    assert op_list.table_rows({"ops": [inline]}) == \
        't.row("both", {x({2}), mask({3, 4}, 2)}, [](const Tensors& in) { return both(in[0], 1, in[1]); });\n'
    for text, wrong in (("Tensor bare(Tensor x);", "bare has no head"), ("//! op: a   kind: b\nTensor a(Tensor x);", "a head is"),
                        ("//! op: a b\nTensor a(Tensor x);\n//! op: c\nTensor c(Tensor x);", "no functions for b"),
                        ("//! op: b\nTensor a(Tensor x);", "the head of a names b"), ("//! op: abs\nTensor abs(int x);", "two ops"),
                        ("//! op: a   try: b(x({2}))\nTensor a(Tensor x);", "try is a call"),
                        ("//! op: a   autocast: high\nTensor a(Tensor x);", "a: autocast is low")):
        try:
            read(text)
        except op_list.HeadError as e:
            assert wrong in str(e), e
        else:
            sys.exit(f"the list takes {text}")


def words(text):
    return re.sub(r"\s+|//", "", text)


def twice(names):
    return sorted({name for name in names if names.count(name) > 1})


def unknown_to_torch(found):
    """Returns the names that PyTorch does not have; nothing if it is not installed."""
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return []
    places = {"ops": (torch, torch.nn.functional, torch.Tensor), "modules": (torch.nn,), "optimizers": (torch.optim,)}

    def has(kind, name):
        parts = name.split("(")[0].split(".")
        if parts[0] in ("torchvision", "torchaudio", "bitsandbytes"):
            return True
        for value in (*places[kind], torch):
            for part in parts:
                value = getattr(value, part, None)
            if value is not None:
                return True
        return False

    return [f"{c['name']}: PyTorch has no {c['torch']}" for kind in places for c in found[kind]
            if c["torch"] and not has(kind, c["torch"])]


def main():
    self_test()
    root = Path(sys.argv[1])
    try:
        found, _ = op_list.everything()
    except op_list.HeadError as e:
        sys.exit(str(e))
    wrong = unknown_to_torch(found)
    sources = "".join(path.read_text() for path in sorted((root / "ops").rglob("*.cpp")))
    wrong += [f"two objects Op are called {name}" for name in twice(OP.findall(sources)) if name != COPIED]
    launched = set(re.findall(r'\blaunch\(\s*"(\w+)"', sources)) - {k for op in found["ops"] for k in op["kernels"]}
    wrong += [f"no op of the list launches the kernel {name}" for name in sorted(launched)]
    if words((root / op_list.MADE).read_text()) != words(op_list.declarations()):
        wrong.append(f"{op_list.MADE} is not what shaders/elementwise.def says")
    wrong += [f"{page} is not what the heads say" for page, text in op_list.pages(found).items() if (root / page).read_text() != text]
    if wrong:
        sys.exit("\n".join(wrong) + "\n`ops/list/op_list.py write` makes files anew")
    print(f"{len(found['ops'])} ops, {len(found['modules'])} modules and {len(found['optimizers'])} optimizers have heads and names")


if __name__ == "__main__":
    main()
