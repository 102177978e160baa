"""ONNX's ops by Rewind's: OPS has a function of (attributes, inputs) for each name.

Numbers are those of Rewind: 64-bit and small whole numbers are i32, f64 is f32, truth values are u8; what does not fit is
Unsupported. The attributes have the node's name as "op" and its number of outputs as "outputs".
"""
import functools
import math

import numpy as np
from judging import Unsupported, registry

import rewind as rw

OPS = {}
op = registry(OPS)


def tensor(array):
    array = np.asarray(array)
    if array.dtype == bool:
        array = array.astype(np.uint8)
    elif array.dtype == np.float64 or array.dtype.name == "bfloat16":
        array = array.astype(np.float32)
    elif array.dtype.kind in "iu" and array.dtype != np.uint8:
        wide = array.astype(np.int64)
        if (array.dtype == np.uint64 and (array > 2**31 - 1).any()) or (wide != wide.astype(np.int32)).any():
            raise Unsupported("whole numbers beyond 32 bits")
        array = wide.astype(np.int32)
    elif array.dtype.kind not in "fiu":
        raise Unsupported(f"elements of {array.dtype}")
    return rw.tensor(np.array(array, order="C"))


def unsupported(why):
    raise Unsupported(why)


def ints(x, kind=int):
    """The elements of a tensor, as arguments are."""
    return [kind(v) for v in x.numpy().reshape(-1)]


def number(x):
    return float(ints(x, float)[0])


def is_float(x):
    return x.dtype not in (rw.i32, rw.u8)


def part(x, axis, begin, end, step=1):
    return x[(slice(None),) * (axis % len(x.shape)) + (slice(begin, end, step),)]


# ---- elements ------------------------------------------------------------------------------------

for name, function in {
        "Abs": "abs", "Ceil": "ceil", "Cos": "cos", "Erf": "erf", "Exp": "exp", "Floor": "floor", "IsNaN": "isnan",
        "Log": "log", "Neg": "neg", "Not": "logical_not", "Reciprocal": "reciprocal", "Relu": "relu", "Round": "round",
        "Sigmoid": "sigmoid", "Sign": "sign", "Sin": "sin", "Softplus": "softplus", "Softsign": "softsign",
        "Sqrt": "sqrt", "Tan": "tan", "Tanh": "tanh"}.items():
    OPS[name] = lambda a, x, f=function: getattr(rw, f)(x)
for name, function in {
        "Add": "add", "And": "logical_and", "Div": "div", "Equal": "equal", "Greater": "greater",
        "GreaterOrEqual": "greater_equal", "Less": "less", "LessOrEqual": "less_equal", "MatMul": "matmul", "Mul": "mul",
        "Or": "logical_or", "PRelu": "", "Sub": "sub", "Xor": "logical_xor"}.items():
    OPS[name] = lambda a, x, y, f=function: getattr(rw, f)(x, y)
for name, function in {"Max": rw.maximum, "Min": rw.minimum, "Sum": rw.add}.items():
    OPS[name] = lambda a, *xs, f=function: functools.reduce(f, xs)
OPS["Mean"] = lambda a, *xs: OPS["Sum"](a, *xs) / float(len(xs))
OPS["Pow"] = lambda a, x, y: rw.cast(rw.pow(x, rw.cast(y, x.dtype) if is_float(x) else y), x.dtype)
OPS["Mod"] = lambda a, x, y: rw.fmod(x, y) if a.get("fmod", 0) else rw.remainder(x, y)
OPS["Identity"] = lambda a, x: x
OPS["HardSwish"] = lambda a, x: rw.hardswish(x)
OPS["PRelu"] = lambda a, x, slope: rw.where(rw.less(x, rw.zeros_like(x)), x * slope, x)
OPS["Sinh"] = lambda a, x: (rw.exp(x) - rw.exp(-x)) * 0.5
OPS["Cosh"] = lambda a, x: (rw.exp(x) + rw.exp(-x)) * 0.5
OPS["Asinh"] = lambda a, x: rw.sign(x) * rw.log(rw.abs(x) + rw.sqrt(x * x + 1.0))
OPS["Acosh"] = lambda a, x: rw.log(x + rw.sqrt(x * x - 1.0))
OPS["Atanh"] = lambda a, x: (rw.log1p(x) - rw.log1p(-x)) * 0.5


@op("Elu", "Celu", "Selu", "LeakyRelu", "ThresholdedRelu", "HardSigmoid", "Shrink")
def activation(a, x):
    alpha = a.get("alpha", {"Selu": 1.6732632423543772, "LeakyRelu": 0.01, "HardSigmoid": 0.2}.get(a["op"], 1.0))
    bias, limit, zero = a.get("bias", 0.0), a.get("lambd", 0.5), rw.zeros_like(x)
    return {"Elu": lambda: rw.elu(x, alpha),
            "Celu": lambda: rw.elu(x / alpha) * alpha,
            "Selu": lambda: rw.elu(x, alpha) * a.get("gamma", 1.0507009873554805),
            "LeakyRelu": lambda: rw.leaky_relu(x, alpha),
            "ThresholdedRelu": lambda: rw.where(x > alpha, x, zero),
            "HardSigmoid": lambda: rw.clamp(x * alpha + a.get("beta", 0.5), 0.0, 1.0),
            "Shrink": lambda: rw.where(x < -limit, x + bias, rw.where(x > limit, x - bias, zero))}[a["op"]]()


@op("Clip")
def clip(a, x, low=None, high=None):
    x = x if low is None else rw.maximum(x, low)
    return x if high is None else rw.minimum(x, high)


@op("IsInf")
def is_infinite(a, x):
    y = rw.isinf(x)
    y = y if a.get("detect_negative", 1) else rw.logical_and(y, x > 0.0)
    return y if a.get("detect_positive", 1) else rw.logical_and(y, x < 0.0)


DTYPES = {1: rw.f32, 10: rw.f16, 11: rw.f32, 16: rw.bf16, 6: rw.i32, 7: rw.i32, 2: rw.u8, 9: rw.u8}


@op("Cast")
def cast(a, x):
    if a["to"] not in DTYPES:
        raise Unsupported(f"a cast to type {a['to']}")
    return rw.not_equal(x, rw.zeros_like(x)) if a["to"] == 9 else rw.cast(x, DTYPES[a["to"]])


OPS["CastLike"] = lambda a, x, like: rw.cast(x, like.dtype)
OPS["Where"] = lambda a, c, x, y: rw.where(c, x, y)


@op("Dropout")
def dropout(a, x, ratio=None, training=None):
    if training is not None and number(training) and (ratio is None or number(ratio) != 0):
        raise Unsupported("other random numbers")
    return x, rw.ones(x.shape, rw.u8)


# ---- shapes --------------------------------------------------------------------------------------

OPS["Shape"] = lambda a, x: tensor(np.array(list(x.shape)[a.get("start", 0):a.get("end")], np.int64))
OPS["Size"] = lambda a, x: tensor(np.array(math.prod(x.shape), np.int64))
OPS["Transpose"] = lambda a, x: rw.permute(x, a.get("perm", list(range(len(x.shape)))[::-1]))
OPS["Concat"] = lambda a, *xs: rw.concat(list(xs), a["axis"])
OPS["Expand"] = lambda a, x, shape: rw.expand(x, list(np.broadcast_shapes(tuple(x.shape), tuple(ints(shape)))))
OPS["Tile"] = lambda a, x, times: rw.tile(x, ints(times))
OPS["Constant"] = lambda a: tensor(a["value"]) if "value" in a else tensor(
    next(np.array(v, np.float32 if "float" in k else np.int64) for k, v in a.items() if k.startswith("value_")))
OPS["Range"] = lambda a, b, e, s: tensor(np.arange(b.numpy(), e.numpy(), s.numpy()).astype(b.numpy().dtype))
OPS["NonZero"] = lambda a, x: rw.transpose(rw.nonzero(x), 0, 1)


@op("Reshape")
def reshape(a, x, shape):
    shape = ints(shape)
    if not a.get("allowzero", 0):
        shape = [x.shape[i] if n == 0 else n for i, n in enumerate(shape)]
    return rw.reshape(x, shape)


@op("Flatten")
def flatten(a, x):
    axis = a.get("axis", 1) % (len(x.shape) + 1) if a.get("axis", 1) >= 0 else a["axis"] + len(x.shape)
    return rw.reshape(x, [math.prod(x.shape[:axis]), math.prod(x.shape[axis:])])


@op("Squeeze", "Unsqueeze")
def squeeze(a, x, axes=None):
    axes = ints(axes) if axes is not None else a.get("axes")
    if a["op"] == "Squeeze":
        axes = [i for i, n in enumerate(x.shape) if n == 1] if axes is None else axes
        for axis in sorted((i % len(x.shape) for i in axes), reverse=True):
            x = rw.squeeze(x, axis)
        return x
    for axis in sorted(i % (len(x.shape) + len(axes)) for i in axes):
        x = rw.unsqueeze(x, axis)
    return x


@op("Slice")
def slice_(a, x, starts, ends, axes=None, steps=None):
    starts, ends = ints(starts), ints(ends)
    axes = ints(axes) if axes is not None else list(range(len(starts)))
    steps = ints(steps) if steps is not None else [1] * len(starts)
    for b, e, axis, step in zip(starts, ends, axes, steps):
        x = part(x, axis, b, e if step > 0 or e >= -x.shape[axis] else None, step)
    return x


@op("Split")
def split(a, x, sizes=None):
    axis = a.get("axis", 0) % len(x.shape)
    each = -(-x.shape[axis] // a["outputs"])
    sizes = ints(sizes) if sizes is not None else [min(each, x.shape[axis] - i * each) for i in range(a["outputs"])]
    ends = np.cumsum(sizes)
    return tuple(part(x, axis, int(e - n), int(e)) for e, n in zip(ends, sizes))


@op("Pad")
def pad(a, x, pads, value=None, axes=None):
    n = len(x.shape)
    pads = ints(pads)
    axes = [i % n for i in ints(axes)] if axes is not None else list(range(n))
    before, after = [0] * n, [0] * n
    for k, axis in enumerate(axes):
        before[axis], after[axis] = pads[k], pads[k + len(axes)]
    mode = a.get("mode", "constant")
    if mode == "constant":
        return rw.pad(x, before, after, 0.0 if value is None else number(value))
    whole = not is_float(x)  # whole numbers pass through f32
    y = rw.pad(rw.cast(x, rw.f32) if whole else x, before, after, mode={"edge": "replicate"}.get(mode, mode))
    return rw.cast(y, x.dtype) if whole else y


@op("ConstantOfShape")
def constant_of_shape(a, shape):
    value = a.get("value", np.zeros(1, np.float32))
    return rw.expand(tensor(value.reshape([1] * len(ints(shape)))), ints(shape)) if ints(shape) else tensor(value.reshape(()))


@op("Trilu")
def trilu(a, x, k=None):
    return (rw.triu if a.get("upper", 1) else rw.tril)(x, 0 if k is None else ints(k)[0])


@op("DepthToSpace", "SpaceToDepth")
def depth(a, x):
    n, c, h, w = x.shape
    b = a["blocksize"]
    if a["op"] == "SpaceToDepth":
        y = rw.permute(rw.reshape(x, [n, c, h // b, b, w // b, b]), [0, 3, 5, 1, 2, 4])
        return rw.reshape(y, [n, c * b * b, h // b, w // b])
    parts, order = ([b, b, c // (b * b)], [0, 3, 4, 1, 5, 2]) if a.get("mode", "DCR") == "DCR" else (
        [c // (b * b), b, b], [0, 1, 4, 2, 5, 3])
    y = rw.permute(rw.reshape(x, [n, *parts, h, w]), order)
    return rw.reshape(y, [n, c // (b * b), h * b, w * b])


# ---- indices -------------------------------------------------------------------------------------


def wrapped(index, size):
    return rw.where(index < 0, index + size, index)


@op("Gather")
def gather(a, x, index):
    axis = a.get("axis", 0) % len(x.shape)
    y = rw.index_select(x, axis, rw.reshape(wrapped(index, x.shape[axis]), [-1]))
    return rw.reshape(y, [*x.shape[:axis], *index.shape, *x.shape[axis + 1:]])


@op("GatherElements")
def gather_elements(a, x, index):
    axis = a.get("axis", 0)
    return rw.gather(x, axis, wrapped(index, x.shape[axis]))


def rows_of(index, shape):
    """Indices [..., K] into the first K axes of a shape, as places of the rows that follow."""
    places = None
    for k in range(index.shape[-1]):
        part = wrapped(rw.select(index, -1, k), shape[k])
        places = part if places is None else places * shape[k] + part
    return rw.reshape(places, [-1])


@op("GatherND")
def gather_nd(a, x, index):
    k = index.shape[-1] if not a.get("batch_dims", 0) else unsupported("batches of places")
    flat = rw.reshape(x, [math.prod(x.shape[:k]), *x.shape[k:]])
    return rw.reshape(rw.index_select(flat, 0, rows_of(index, x.shape)), [*index.shape[:-1], *x.shape[k:]])


def chosen(a, places):
    how = a.get("reduction", "none")
    return places[how] if how in places else unsupported(f"scatter with {how}")


@op("ScatterND")
def scatter_nd(a, x, index, updates):
    rest = [-1, *x.shape[index.shape[-1]:]]
    place = chosen(a, {"none": rw.index_copy, "add": rw.index_add})
    y = place(rw.reshape(x, rest), 0, rows_of(index, x.shape), rw.reshape(updates, rest))
    return rw.reshape(y, x.shape)


@op("Scatter", "ScatterElements")
def scatter(a, x, index, updates):
    axis = a.get("axis", 0) % len(x.shape)
    place = chosen(a, {"none": rw.scatter, "add": rw.scatter_add})
    return place(x, axis, wrapped(index, x.shape[axis]), updates)


@op("TopK")
def topk(a, x, k):
    axis = a.get("axis", -1)
    r = rw.topk(x, ints(k)[0], axis, bool(a.get("largest", 1)))
    return r.values, r.indices


@op("ArgMax", "ArgMin")
def arg(a, x):
    axis, f = a.get("axis", 0) % len(x.shape), rw.argmax if a["op"] == "ArgMax" else rw.argmin
    y = (x.shape[axis] - 1) - f(rw.flip(x, [axis]), axis) if a.get("select_last_index", 0) else f(x, axis)
    return rw.unsqueeze(y, axis) if a.get("keepdims", 1) else y


@op("Hardmax")
def hardmax(a, x):
    n = len(x.shape)
    axis = a.get("axis", -1) % n
    return rw.permute(rw.one_hot(rw.argmax(x, axis), x.shape[axis]), [*range(axis), n - 1, *range(axis, n - 1)])


@op("Compress")
def compress(a, x, mask):
    x = x if "axis" in a else rw.reshape(x, [-1])
    return rw.index_select(x, a.get("axis", 0), rw.reshape(rw.nonzero(mask), [-1]))


# ---- sums ----------------------------------------------------------------------------------------

REDUCTIONS = {
    "ReduceSum": rw.sum, "ReduceMean": rw.mean, "ReduceMax": rw.max, "ReduceMin": rw.min, "ReduceProd": rw.prod,
    "ReduceLogSumExp": rw.logsumexp, "ReduceL1": lambda x, *r: rw.sum(rw.abs(x), *r),
    "ReduceL2": lambda x, *r: rw.sqrt(rw.sum(x * x, *r)), "ReduceSumSquare": lambda x, *r: rw.sum(x * x, *r),
    "ReduceLogSum": lambda x, *r: rw.log(rw.sum(x, *r))}


@op(*REDUCTIONS)
def reduce(a, x, axes=None):
    axes = ints(axes) if axes is not None else list(a.get("axes", []))
    if not axes and a.get("noop_with_empty_axes", 0):
        return x
    return REDUCTIONS[a["op"]](x, axes, bool(a.get("keepdims", 1)))


@op("CumSum")
def cumulative(a, x, axis):
    axis, reverse = ints(axis)[0], bool(a.get("reverse", 0))
    y = rw.cumsum(x, axis, reverse)
    return y - x if a.get("exclusive", 0) else y


@op("Softmax", "LogSoftmax")
def softmax(a, x):
    return (rw.softmax if a["op"] == "Softmax" else rw.log_softmax)(x, a.get("axis", -1))


@op("Gemm")
def gemm(a, x, y, c=None):
    x = rw.transpose(x, 0, 1) if a.get("transA", 0) else x
    y = rw.transpose(y, 0, 1) if a.get("transB", 0) else y
    z = rw.matmul(x, y) * a.get("alpha", 1.0)
    return z if c is None else z + c * a.get("beta", 1.0)


OPS["Einsum"] = lambda a, *xs: rw.einsum(a["equation"], list(xs))
