"""Runs ONNX's node cases by Rewind's ops (onnx_ops.py, onnx_networks.py), and counts those that hold.

    python3 onnx_cases.py [--data DIR] [--only PATTERN] [--write FILE.md]

A case is a graph with inputs and outputs, and holds within the tolerances of ONNX's own runner. Needs the packages onnx
and numpy. The cases are Debian's libonnx-testdata (onnx/backend/test/case/node of github.com/onnx/onnx).
"""
import collections
import fnmatch
import glob
import os
import sys

import numpy as np
import onnx
import onnx_networks  # noqa: F401  it fills OPS
from judging import Unsupported, options_of, reason
from onnx import numpy_helper
from onnx_ops import OPS, tensor

import rewind as rw

BAR = 600  # so many cases must hold


def attributes(node):
    values = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    for k, v in values.items():
        if isinstance(v, bytes):
            values[k] = v.decode()
        elif isinstance(v, onnx.TensorProto):
            values[k] = numpy_helper.to_array(v)
    return {**values, "op": node.op_type, "outputs": len(node.output)}


def run(graph, inputs):
    known = {t.name: tensor(numpy_helper.to_array(t)) for t in graph.initializer}
    known.update(inputs)
    for node in graph.node:
        if node.op_type not in OPS:
            raise Unsupported(f"no {node.op_type}")
        result = OPS[node.op_type](attributes(node), *[known[n] if n else None for n in node.input])
        known.update(zip(node.output, result if isinstance(result, tuple) else (result,)))
    return [known[o.name] for o in graph.output]


def read(path):
    proto = onnx.TensorProto()
    with open(path, "rb") as file:
        proto.ParseFromString(file.read())
    return numpy_helper.to_array(proto)


def check(case):
    """Returns '' if the case holds, else why not."""
    model = onnx.load(os.path.join(case, "model.onnx"))
    data = os.path.join(case, "test_data_set_0")
    try:
        for v in [*model.graph.input, *model.graph.output]:
            if not v.type.HasField("tensor_type") or v.type.tensor_type.elem_type == 8:
                raise Unsupported("sequences and texts")
        names = [v.name for v in model.graph.input]
        inputs = {n: tensor(read(f"{data}/input_{i}.pb")) for i, n in enumerate(names)}
        outputs = run(model.graph, inputs)
        for i, y in enumerate(outputs):
            wanted, got = read(f"{data}/output_{i}.pb"), np.asarray(y.numpy())
            if wanted.shape != got.shape:
                return f"shape {got.shape}, expected {wanted.shape}"
            kind = np.int64 if wanted.dtype.kind in "biu" else np.float64
            if not np.allclose(got.astype(kind), wanted.astype(kind), rtol=1e-3, atol=1e-7, equal_nan=True):
                return "other values"
        return ""
    except Unsupported as why:
        return str(why)
    except Exception as error:  # the table shows it
        return reason(error)


def write(path, held, misses):
    reasons = collections.defaultdict(list)
    for name, why in misses.items():
        reasons[why].append(name.removeprefix("test_"))
    with open(path, "w") as file:
        file.write(f"# ONNX's node cases from Python\n\n{held} (onnx {onnx.__version__}, Debian's libonnx-testdata, Rewind "
                   f"{rw.__version__}). `python3 python/judges/onnx_cases.py --write` made this page; a miss has its reason.\n\n"
                   "| why | cases |\n|---|---|\n")
        for why, names in sorted(reasons.items(), key=lambda r: -len(r[1])):
            file.write(f"| {why.replace('|', '/')} | {len(names)}: {', '.join(names)} |\n")


def main():
    options = options_of(__doc__, ("--data", "/usr/share/libonnx-testdata/data/node"))
    cases = [c for c in sorted(glob.glob(options.data + "/*/")) if fnmatch.fnmatch(os.path.basename(c[:-1]), options.only)]
    misses = {os.path.basename(c[:-1]): why for c in cases if (why := check(c))}
    held = f"{len(cases) - len(misses)} of {len(cases)} node cases hold"
    for name, why in misses.items():
        print(name, "|", why)
    print(held)
    if options.write:
        write(options.write, held, misses)
    return 0 if options.only != "*" or len(cases) - len(misses) >= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
