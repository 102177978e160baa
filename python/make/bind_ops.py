#!/usr/bin/env python3
"""Writes the bindings of all ops of the list: UNITS files of C++, each of which binds a part of them.

    bind_ops.py OP_LIST.json ENUMS.h OUT.cpp ...
"""
import json
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from op_binding import Call, NoBinding, check_tables, text, write_if_new  # noqa: E402

# Ops that the door does not make of the list, and why.
IN_BLOCKS = "weights in blocks are inside of models, which Python does not take apart (BlockMatrix has no class)"
BY_HAND = {
    "slice": "x[begin:end:step] is Python's word for it (door/indexing.cpp)",
    "pow_base": "pow takes numbers on either side (NUMBERS)",
    "pow_scalar": "pow takes numbers on either side (NUMBERS)",
    "scatter_value": "scatter takes a number for its source (NUMBERS)",
    "dequantize": IN_BLOCKS,
    "embedding_blocks": IN_BLOCKS,
    "linear_blocks": IN_BLOCKS,
    "matmul_blocks": IN_BLOCKS,
    "tied_cross_entropy_blocks": IN_BLOCKS,
    "cross_entropy": "cross_entropy_weighted's weight may be None",
    "arange": "arange(end), arange(begin, end, step) as Python counts (door/tensor.cpp)",
    "arange_step": "arange(end), arange(begin, end, step) as Python counts (door/tensor.cpp)",
}
# Tensors that may be None, where the list's type does not say it; with True they may be left out.
UNDEFINED = {"conv2d": {"bias": True}, "cross_entropy_weighted": {"weight": True}, "rnnt_joint_loss": {"bias": False},
             "tied_cross_entropy": {"bias": False}, "tied_cross_entropy_blocks": {"bias": False}}
# Arguments that stay away from Python, and why.
HIDDEN = {
    "exchange": "the ranks' side of batch_norm, which DataParallel sets",
}
FAMILIES = ("ops/elementwise/", "ops/layout/", "ops/numeric.h", "ops/ops.h", "ops/statistics.h")  # whose ops may be methods
# Ops of these families that PyTorch has as functions only (torch.nn.functional).
FUNCTIONS = {"affine", "attention", "avg_pool2d", "batch_norm", "batch_norm_with", "checkpoint_keep", "checkpoint_name", "conv2d",
             "dropout", "elu", "embedding", "gelu", "gelu_tanh", "geglu", "glu", "group_norm", "gru", "hardsigmoid", "hardswish",
             "hardtanh", "instance_norm", "layer_norm", "leaky_relu", "linear", "log_sigmoid", "lstm", "max_pool2d", "mish",
             "normalize", "one_hot", "pad", "rms_norm", "selu", "silu", "softplus", "softsign", "swiglu", "zeros_like",
             "cosine_similarity", "where"}
# Methods that take their sizes one by one as well: x.reshape(2, 3). They are in door/shaping.cpp.
SPREAD = {"reshape", "permute", "expand", "repeat", "tile", "flip"}
# Ops of which either side may be a number: the door's arithmetic (door/operators.cpp).
NUMBERS = {"add", "sub", "mul", "div", "pow"}
SIZES = {"reshape": "door::reshaped({x}, {shape})", "expand": "door::expanded({x}, {shape})"}


def is_pair(op):
    """Tells whether an op is a function of two tensors, one of which may be a number."""
    return [a["type"] for a in op["arguments"]] == ["Tensor", "Tensor"] and op["header"] in ("ops/elementwise/rows.h", "ops/ops.h") \
        and [a["name"] for a in op["arguments"]] == ["a", "b"] and op["name"] != "matmul"


def aliases(op):
    torch = op["torch"]
    return [torch] if torch.isidentifier() and torch != op["function"] and op["name"] == op["function"] and op["name"] != "cast" else []


def is_method(op):
    first = op["arguments"][0]["type"] if op["arguments"] else ""
    return first in ("Tensor", "const Tensor&") and op["header"].startswith(FAMILIES) and op["name"] not in FUNCTIONS


def is_bound(op):
    return op["name"] not in BY_HAND


class Binding:
    def __init__(self, op, enums, overloaded):
        self.op, self.overloaded = op, overloaded
        self.predicts = any(a["type"] == "Tensor*" for a in op["arguments"])
        skip = {a["name"] for a in op["arguments"] if a["type"] == "Tensor*" or a["name"] in HIDDEN}
        undefined = UNDEFINED.get(op["name"], {})
        arguments = [dict(a, may_be_undefined=True, **({"default": "{}"} if undefined[a["name"]] else {}))
                     if a["name"] in undefined else a for a in op["arguments"]]
        self.call = Call(arguments, enums, skip)
        self.passed = list(self.call.passed)

    def body(self):
        op, call = self.op, self.call
        name = f"rw::{op['function']}"
        if op["name"] in NUMBERS:
            return f"&door::{op['name']}"
        if op["name"] == "scatter":
            return "[](door::Given x, int axis, door::Given index, door::Operand source) { return source.number ? " \
                "rw::scatter(std::move(x.tensor), axis, std::move(index.tensor), static_cast<float>(source.number->value)) : " \
                "rw::scatter(std::move(x.tensor), axis, std::move(index.tensor), std::move(source.tensor)); }"
        if is_pair(op):
            return "[](door::Operand a, door::Operand b) { door::beside(a, b); return " \
                f"rw::Tensor({name}(std::move(a.tensor), std::move(b.tensor))); }}"
        if op["name"] == "where":
            return "[](door::Given condition, door::Operand a, door::Operand b) { door::beside(a, b); return " \
                "rw::where(std::move(condition.tensor), std::move(a.tensor), std::move(b.tensor)); }"
        passed = list(self.passed)
        if op["name"] in SIZES:
            passed[1] = SIZES[op["name"]].format(x="x.tensor", shape="shape")
            return f"[]({call.parameters()}) {{ const rw::Shape sizes = {passed[1]}; return {name}(std::move(x.tensor), sizes); }}"
        makes = not any(a.reads in ("door::Given", "rw::TensorList") for a in call.all)
        before = "door::ensure_device(); " if makes else ""
        if self.predicts:
            return f"[]({call.parameters()}, bool return_predicted) {{ rw::Tensor predicted; rw::Tensor loss = " \
                f"{name}({', '.join(passed)}, return_predicted ? &predicted : nullptr); " \
                "return door::Predicted{std::move(loss), std::move(predicted)}; }"
        return f"[]({call.parameters()}) {{ {before}return {name}({', '.join(passed)}); }}"

    def declared(self):
        if is_pair(self.op):
            return ['nb::arg("a")', 'nb::arg("b")']
        declared = self.call.declared(self.overloaded)
        return [*declared, 'nb::arg("return_predicted") = false'] if self.predicts else declared

    def doc(self):
        op = self.op
        notes = [op["doc"]] if op["doc"] else []
        if op["dtypes"]:
            notes.append(f"Dtypes: {', '.join(op['dtypes'])}.")
        if op["torch"] and op["torch"] != op["function"]:
            notes.append(f"PyTorch: {op['torch']}.")
        return "\n\n".join(notes)

    def statement(self):
        op = self.op
        words = [self.body(), *self.declared(), "Release()", text(self.doc())]
        lines = [f'  m.def("{name}", {", ".join(words)});' for name in [op["function"], *aliases(op)]]
        return "\n".join(lines)

    def method(self):
        """The method is the same function, whose first argument is the tensor itself."""
        op = self.op
        names = [n for n in [op["function"], *aliases(op)] if op["name"] not in SPREAD]
        words = [self.body(), *self.declared()[1:], "Release()", text(self.doc())]
        return "\n".join(f'  tensor.def("{n}", {", ".join(words)});' for n in names)


def bindings(found):
    """Returns the bindings, and raises for an op that is in no table and has no binding."""
    count = Counter(op["function"] for op in found["ops"] if is_bound(op))
    made = []
    for op in found["ops"]:
        if is_bound(op):
            try:
                made.append(Binding(op, found["enums"], count[op["function"]] > 1))
            except NoBinding as e:
                raise SystemExit(f"bind_ops.py: {op['name']}: {e}; bind it by hand and name it in BY_HAND") from e
    # A number must not be taken for a tensor: overloads with numbers come first.
    return sorted(made, key=lambda b: (b.op["function"], not any(a.kind == "float" for a in b.call.positional), b.op["name"]))


UNIT = """// Made of the list of ops by python/make/bind_ops.py.
#include "enums.h"
#include "python/door/door.h"
#include "python/door/results.h"

namespace door {{

void bind_ops_{number}(nb::module_& m, nb::class_<rw::Tensor>& tensor) {{
  (void)tensor;
{statements}
}}

}}  // namespace door
"""


def enum_names(found):
    """Returns the header with the names of enumerations."""
    wanted = [e for e in found["enums"] if e not in ("Kind", "Pass", "AutocastRule", "Overflow", "ValueKind", "FanMode", "Nonlinearity")]
    body = "".join(f"template <>\nstruct EnumNames<rw::{e}> {{\n  static constexpr const char* names[] = "
                   f"{{{', '.join(json.dumps(v) for v in found['enums'][e])}}};\n  static constexpr int count = {len(found['enums'][e])};\n}};\n"
                   for e in wanted)
    casters = "".join(f"template <>\nstruct type_caster<rw::{e}> : name_caster<rw::{e}> {{}};\n" for e in wanted)
    return f'// Made of the list of ops by python/make/bind_ops.py.\n#pragma once\n\n#include "python/door/arguments.h"\n\n' \
        f"namespace door {{\n\n{body}\n}}  // namespace door\n\nnamespace nanobind::detail {{\n\n{casters}\n}}  // namespace nanobind::detail\n"


def main():
    found = json.loads(Path(sys.argv[1]).read_text())
    check_tables(found, BY_HAND, NUMBERS, SIZES, FUNCTIONS, SPREAD)
    made, units = bindings(found), sys.argv[3:]
    write_if_new(sys.argv[2], enum_names(found))
    size = -(-len(made) // len(units))
    for i, unit in enumerate(units):
        part = made[i * size:(i + 1) * size]
        statements = "\n".join([b.statement() for b in part] + [b.method() for b in part if is_method(b.op)])
        if i == len(units) - 1:
            calls = "".join(f"  bind_ops_{k}(m, tensor);\n" for k in range(len(units)))
            ahead = "".join(f"void bind_ops_{k}(nb::module_& m, nb::class_<rw::Tensor>& tensor);\n" for k in range(len(units)))
            tail = f"\nnamespace door {{\n\n{ahead}\nvoid bind_ops(nb::module_& m, nb::class_<rw::Tensor>& tensor) {{\n{calls}}}\n\n}}  // namespace door\n"
        else:
            tail = ""
        write_if_new(unit, UNIT.format(number=i, statements=statements) + tail)


if __name__ == "__main__":
    main()
