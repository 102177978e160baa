#!/usr/bin/env python3
"""Writes the bindings of the modules and optimizers of the list.

    bind_modules.py OP_LIST.json MODULES.cpp OPTIMIZERS.cpp
"""
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from op_binding import Call, NoBinding, check_tables, text, write_if_new  # noqa: E402

# Modules and optimizers that the door does not make of the list, and why.
BY_HAND = {
    "Sequential": "holds modules of Python (rewind/nn.py)",
    "ModuleList": "holds modules of Python (rewind/nn.py)",
    "ModuleDict": "holds modules of Python (rewind/nn.py)",
    "Lambda": "any function of Python is one in a Sequential (rewind/nn.py)",
    "Lora": "adapters are put into models that exist (rw.lora)",
    "BlockLinear": "made of weights in blocks, which files have (rw.lora)",
    "BlockEmbedding": "made of weights in blocks, which files have (rw.lora)",
    "Accumulate": "takes another optimizer (door/optimizers.cpp)",
    "FusedBackward": "takes another optimizer (door/optimizers.cpp)",
    "Muon": "has two sets of options (door/optimizers.cpp)",
}
EXTENDED = {"LSTM", "GRU", "MultiheadAttention", "TransformerEncoderLayer", "TransformerEncoder", "TransformerDecoderLayer",
            "TransformerDecoder", "Transformer", "BertAttention", "BertLayer"}
# `in` is a word of Python: these arguments have PyTorch's names.
NAMES = {"Linear": {"in": "in_features", "out": "out_features"}}
CHANNELS = {"in": "in_channels", "out": "out_channels", "kernel": "kernel_size"}

HEAD = """// Made of the list of ops by python/make/bind_modules.py.
#include "enums.h"
#include "python/door/modules.h"
"""


def cleaned(constructor, name):
    """The arguments with PyTorch's names where C++'s cannot be said, and an activation as an argument."""
    names = NAMES["Linear"] if "Linear" in name else CHANNELS if "Conv" in name else {}
    found = []
    for a in constructor:
        a = dict(a, name=names.get(a["name"], a["name"]))
        if "keywords" in a:
            a["keywords"] = [{"name": "activation", "type": "Activation", "default": "relu"} if "activation" in k["type"] else k
                             for k in a["keywords"]]
        found.append(a)
    return found


def documented(c):
    return text(c["doc"] + (f"\n\nPyTorch: {c['torch']}." if c["torch"] and c["torch"] != c["name"] else ""))


def module(c, enums):
    call = Call(cleaned(c["constructors"][0], c["name"]), enums)
    kind = f"rw::{c['name']}"
    parameters = "".join(f", {a.parameter()}" for a in call.all)
    lines = [f'  {{\n    nb::class_<{kind}, rw::Module> c(m, "{c["name"]}", {documented(c)});']
    keeps = "".join(f", nb::keep_alive<1, {i + 2}>()" for i, a in enumerate(call.all) if a.kind == "GeneratorRef")
    known = "".join(f' remember(self.h, "{a.name}", {a.name});' for a in call.all if a.reads not in ("rw::Generator*", "door::Given", "door::Maybe"))
    lines.append(f'    c.def("__init__", [](nb::pointer_and_handle<{kind}> self{parameters}) {{ ensure_device();{known or " remember_nothing(self.h);"} '
                 f'new (self.p) {kind}({", ".join(call.passed)}); }}'
                 + "".join(f", {word}" for word in call.declared()) + f"{keeps});")
    if c["name"] in EXTENDED:
        lines.append("    extend(c);")
    return "\n".join(lines) + "\n  }"


def optimizer(c, enums):
    groups = next(k for k in c["constructors"] if k[0]["type"] == "std::vector<ParameterGroup>")
    first = groups[0]
    call = Call(groups[1:], enums)
    kind = f"rw::{c['name']}"
    parameters = ", ".join(["door::GroupsGiven parameters", *(a.parameter() for a in call.all)])
    passed = ", ".join(["std::move(parameters).at(lr)", *call.passed])
    assert first["name"] == "groups", c["name"]
    return f'  nb::class_<{kind}, rw::Optimizer>(m, "{c["name"]}", {documented(c)})\n' \
        f'      .def("__init__", []({kind}* self, {parameters}) {{ new (self) {kind}({passed}); }}, ' \
        + ", ".join(['nb::arg("parameters")', *call.declared()]) + ");"


def made(kind, function, found):
    statements = []
    for c in found[kind]:
        if c["name"] in BY_HAND:
            continue
        try:
            statements.append(function(c, found["enums"]))
        except NoBinding as e:
            raise SystemExit(f"bind_modules.py: {c['name']}: {e}; bind it by hand and name it in BY_HAND") from e
    body = "\n".join(statements)
    headers = "".join(f"#include \"{h}\"\n" for h in sorted({c["header"] for c in found[kind]}))
    return f"{HEAD}{headers}\nnamespace door {{\n\nvoid bind_listed_{kind}(nb::module_& m) {{\n{body}\n}}\n\n}}  // namespace door\n"


def main():
    found = json.loads(Path(sys.argv[1]).read_text())
    check_tables(found, BY_HAND, EXTENDED)
    write_if_new(sys.argv[2], made("modules", module, found))
    write_if_new(sys.argv[3], made("optimizers", optimizer, found))


if __name__ == "__main__":
    main()
