"""PyTorch's ops by Rewind's: ENTRIES has a function for each entry of OpInfo that an op of Rewind answers.

A function takes the arguments of PyTorch's op, with rewind.Tensor for torch.Tensor. Where PyTorch puts channels second,
or takes one number for many, it says so here and nowhere else. Unsupported is raised for samples that Rewind says it does not do.
"""
import math

import numpy as np
import torch
from judging import Unsupported, registry

import rewind as rw

ENTRIES = {}
entry = registry(ENTRIES)


def need(condition, why):
    if not condition:
        raise Unsupported(why)


def axes(dim):
    return [] if dim is None else [dim] if isinstance(dim, int) else list(dim)


def no_dtype(kw):
    dtype = kw.pop("dtype", None)
    need(dtype in (None, torch.float32), "other dtypes of results")


DTYPES = {torch.float32: rw.f32, torch.float16: rw.f16, torch.bfloat16: rw.bf16, torch.int32: rw.i32, torch.int64: rw.i32,
          torch.uint8: rw.u8, torch.bool: rw.u8}


def dtype_of(kind):
    need(kind is None or kind in DTYPES, f"tensors of {kind}")
    return DTYPES.get(kind, rw.f32)


# ---- the same names -------------------------------------------------------------------------------

for name in ("abs ceil cos erf erfinv exp expm1 floor isfinite isinf isnan log log1p logical_not neg reciprocal rsqrt sigmoid "
             "sign sin sqrt square tan tanh trunc").split():
    ENTRIES[name] = getattr(rw, name)
for name in ("logical_and logical_or logical_xor logaddexp maximum minimum fmod remainder matmul mul pow").split():
    ENTRIES[name] = getattr(rw, name)
for theirs, ours in {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal",
                     "max/binary": "maximum", "min/binary": "minimum", "mm": "matmul", "bmm": "matmul", "mv": "matmul"}.items():
    ENTRIES[theirs] = getattr(rw, ours)
for name in "relu relu6 hardsigmoid hardswish mish selu silu softsign logsigmoid tanhshrink".split():
    f = {"logsigmoid": rw.log_sigmoid, "relu6": lambda x: rw.clamp(x, 0.0, 6.0), "tanhshrink": lambda x: x - rw.tanh(x)}.get(name)
    f = f or getattr(rw, name)
    ENTRIES["nn.functional." + name] = lambda x, inplace=False, f=f: f(x)


ENTRIES["add"] = lambda x, y, alpha=1: x + (y if alpha == 1 else y * alpha)
ENTRIES["sub"] = lambda x, y, alpha=1: x - (y if alpha == 1 else y * alpha)
ENTRIES["rsub"] = lambda x, y, alpha=1: y - (x if alpha == 1 else x * alpha)
ENTRIES["__radd__"] = lambda x, y: y + x
ENTRIES["__rmul__"] = lambda x, y: y * x
ENTRIES["__rsub__"] = lambda x, y: y - x
ENTRIES["__rdiv__"] = lambda x, y: y / x
ENTRIES["__rpow__"] = lambda x, y: y ** x
ENTRIES["__rmatmul__"] = lambda x, y: y @ x
ENTRIES["div/no_rounding_mode"] = ENTRIES["true_divide"] = lambda x, y, rounding_mode=None: x / y
ENTRIES["div/floor_rounding"] = lambda x, y, rounding_mode=None: rw.floor(x / y)
ENTRIES["div/trunc_rounding"] = lambda x, y, rounding_mode=None: rw.trunc(x / y)
ENTRIES["addmm"] = ENTRIES["addmv"] = ENTRIES["baddbmm"] = lambda c, a, b, beta=1, alpha=1: c * beta + rw.matmul(a, b) * alpha
ENTRIES["addcmul"] = lambda x, a, b, value=1: x + a * b * value
ENTRIES["addcdiv"] = lambda x, a, b, value=1: x + a / b * value
ENTRIES["lerp"] = lambda a, b, w: a + (b - a) * w
ENTRIES["clamp_min"] = rw.maximum
ENTRIES["clamp_max"] = rw.minimum
ENTRIES["exp2"] = lambda x: rw.pow(2.0, x)
ENTRIES["round"] = rw.round
ENTRIES["positive"] = ENTRIES["clone"] = ENTRIES["contiguous"] = lambda x, **kw: rw.contiguous(x)
ENTRIES["rad2deg"] = lambda x: x * (180 / math.pi)
ENTRIES["deg2rad"] = lambda x: x * (math.pi / 180)
ENTRIES["sinh"] = lambda x: (rw.exp(x) - rw.exp(-x)) * 0.5
ENTRIES["cosh"] = lambda x: (rw.exp(x) + rw.exp(-x)) * 0.5
ENTRIES["erfc"] = lambda x: 1.0 - rw.erf(x)
ENTRIES["log2"] = lambda x: rw.log(x) / math.log(2)
ENTRIES["log10"] = lambda x: rw.log(x) / math.log(10)
ENTRIES["float"] = lambda x, **kw: rw.cast(x, rw.f32)
ENTRIES["half"] = lambda x, **kw: rw.cast(x, rw.f16)
ENTRIES["int"] = lambda x, **kw: rw.cast(x, rw.i32)
ENTRIES["outer"] = lambda a, b: rw.unsqueeze(a, 1) * rw.unsqueeze(b, 0)
ENTRIES["dot"] = ENTRIES["inner"] = lambda a, b: rw.sum(a * b) if len(a.shape) == len(b.shape) == 1 else skip("inner of many axes")


def skip(why):
    raise Unsupported(why)


@entry("clamp")
def clamp(x, low=None, high=None, **kw):
    low, high = kw.get("min", low), kw.get("max", high)
    if low is not None:
        x = rw.maximum(x, low)
    return x if high is None else rw.minimum(x, high)


@entry("nan_to_num")
def nan_to_num(x, nan=None, posinf=None, neginf=None):
    return rw.nan_to_num(x, nan or 0.0, posinf, neginf)


# ---- reductions -----------------------------------------------------------------------------------

for theirs, ours in {"amax": "max", "amin": "min", "mean": "mean", "logsumexp": "logsumexp"}.items():
    @entry(theirs)
    def reduce(x, dim=None, keepdim=False, f=getattr(rw, ours), **kw):
        no_dtype(kw)
        return f(x, axes(dim), keepdim)
for name in ("sum", "prod", "all", "any"):
    @entry(name)
    def total(x, dim=None, keepdim=False, f=getattr(rw, name), **kw):
        no_dtype(kw)
        return f(x, axes(dim), keepdim)
ENTRIES["max/reduction_no_dim"], ENTRIES["min/reduction_no_dim"] = rw.max, rw.min


@entry("max/reduction_with_dim")
def extreme(x, dim, keepdim=False, largest=True):
    values, indices = rw.topk(x, 1, dim, largest)[:2]
    return (values, indices) if keepdim else (rw.squeeze(values, dim), rw.squeeze(indices, dim))


ENTRIES["min/reduction_with_dim"] = lambda x, dim, keepdim=False: extreme(x, dim, keepdim, False)


@entry("var", "var/unbiased")
def var(x, dim=None, unbiased=True, keepdim=False, correction=None):
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    correction = int(unbiased) if correction is None else correction
    need(correction in (0, 1), "other corrections than 0 and 1")
    return rw.var(x, axes(dim), bool(correction), keepdim)


ENTRIES["std"] = ENTRIES["std/unbiased"] = lambda x, *a, **kw: rw.sqrt(var(x, *a, **kw))
ENTRIES["var_mean"] = ENTRIES["var_mean/unbiased"] = lambda x, *a, **kw: (
    var(x, *a, **kw), rw.mean(x, axes(kw.get("dim", a[0] if a and not isinstance(a[0], bool) else None)), kw.get("keepdim", False)))


@entry("argmax")
def arg(x, dim=None, keepdim=False, f=rw.argmax):
    if dim is None:
        y = f(rw.reshape(x, [-1]), 0)
        return rw.reshape(y, [1] * len(x.shape)) if keepdim else y
    y = f(x, dim)
    return rw.unsqueeze(y, dim) if keepdim else y


ENTRIES["argmin"] = lambda x, dim=None, keepdim=False: arg(x, dim, keepdim, rw.argmin)
ENTRIES["argsort"] = lambda x, dim=-1, descending=False, stable=False: rw.argsort(x, dim, descending)
ENTRIES["sort"] = lambda x, dim=-1, descending=False, stable=False: tuple(rw.sort(x, dim, descending))
ENTRIES["topk"] = lambda x, k, dim=-1, largest=True, sorted=True: tuple(rw.topk(x, k, dim, largest))


@entry("linalg.vector_norm")
def vector_norm(x, ord=2, dim=None, keepdim=False, **kw):
    no_dtype(kw)
    return rw.norm(x, ord, axes(dim), keepdim)


@entry("cumsum")
def cumulative(x, dim, f=rw.cumsum, **kw):
    no_dtype(kw)
    return f(x, dim)


ENTRIES["cumprod"] = lambda x, dim, **kw: cumulative(x, dim, rw.cumprod, **kw)
ENTRIES["logcumsumexp"] = lambda x, dim: rw.logcumsumexp(x, dim)
ENTRIES["count_nonzero"] = lambda x, dim=None: rw.sum(rw.cast(rw.not_equal(x, rw.zeros_like(x)), rw.i32), axes(dim))
ENTRIES["trace"] = lambda x: rw.sum(rw.diagonal(x))


# ---- shapes and places ----------------------------------------------------------------------------

ENTRIES["cat"] = lambda xs, dim=0: rw.concat(list(xs), dim)
ENTRIES["stack"] = lambda xs, dim=0: rw.stack(list(xs), dim)
ENTRIES["chunk"] = ENTRIES["unsafe_chunk"] = lambda x, n, dim=0: rw.chunk(x, n, dim)
ENTRIES["unbind"] = lambda x, dim=0: rw.unbind(x, dim)
ENTRIES["select"] = lambda x, dim, index: rw.select(x, dim, index)
ENTRIES["narrow"] = lambda x, dim, start, n: skip("starts that are tensors") if not isinstance(start, int) else index(
    x, dim, slice(start if start >= 0 else start + x.shape[dim], (start if start >= 0 else start + x.shape[dim]) + n))
ENTRIES["slice"] = lambda x, dim=0, start=None, end=None, step=1: index(x, dim, slice(start, end, step))
ENTRIES["transpose"] = rw.transpose
ENTRIES["t"] = lambda x: rw.transpose(x, 0, 1) if len(x.shape) == 2 else x
ENTRIES["T"] = lambda x: rw.permute(x, list(range(len(x.shape)))[::-1])
ENTRIES["mT"] = lambda x: rw.transpose(x, -1, -2)
ENTRIES["permute"] = lambda x, dims: rw.permute(x, list(dims))
ENTRIES["reshape"] = ENTRIES["view"] = lambda x, shape: rw.reshape(x, list(shape))
ENTRIES["reshape_as"] = ENTRIES["view_as"] = lambda x, like: rw.reshape(x, like.shape)
ENTRIES["expand"] = lambda x, shape: rw.expand(x, list(shape))
ENTRIES["expand_as"] = lambda x, like: rw.expand(x, like.shape)
ENTRIES["broadcast_to"] = lambda x, shape: rw.expand(x, list(shape))
ENTRIES["flatten"] = lambda x, first=0, to=-1, **kw: rw.flatten(x, kw.get("start_dim", first), kw.get("end_dim", to))
ENTRIES["ravel"] = lambda x: rw.reshape(x, [-1])
ENTRIES["unsqueeze"] = rw.unsqueeze
ENTRIES["flip"] = lambda x, dims: rw.flip(x, axes(dims)) if axes(dims) else x
ENTRIES["fliplr"] = lambda x: rw.flip(x, [1])
ENTRIES["flipud"] = lambda x: rw.flip(x, [0])
ENTRIES["tile"] = lambda x, times: rw.tile(x, list(times))
ENTRIES["repeat"] = lambda x, times: rw.repeat(x, list(times))
ENTRIES["diagonal"] = lambda x, offset=0, dim1=0, dim2=1: rw.diagonal(x, offset, dim1, dim2)
ENTRIES["diag"] = lambda x, k=0: rw.diag(x, k)
ENTRIES["tril"], ENTRIES["triu"] = (lambda x, k=0: rw.tril(x, k)), (lambda x, k=0: rw.triu(x, k))
ENTRIES["unfold"] = lambda x, dim, size, step: rw.unfold(x, dim, size, step)
ENTRIES["einsum"] = lambda xs, equation: rw.einsum(equation, list(xs))
ENTRIES["sum_to_size"] = lambda x, *shape: rw.sum_to(x, list(shape[0]) if shape and not isinstance(shape[0], int) else list(shape))
ENTRIES["movedim"] = lambda x, a, b: rw.permute(x, moved(len(x.shape), axes(a), axes(b)))
ENTRIES["hstack"] = lambda xs: rw.concat(list(xs), 0 if len(xs[0].shape) == 1 else 1)
ENTRIES["vstack"] = lambda xs: rw.concat([rw.unsqueeze(x, 0) if len(x.shape) == 1 else x for x in xs], 0)


def index(x, dim, what):
    return x[(slice(None),) * (dim % len(x.shape)) + (what,)]


def moved(rank, a, b):
    order = [i for i in range(rank) if i not in [k % rank for k in a]]
    for to, of in sorted((t % rank, o % rank) for t, o in zip(b, a)):
        order.insert(to, of)
    return order


@entry("split", "split/list_args", "split_with_sizes", "unsafe_split")
def split(x, size, dim=0):
    if isinstance(size, int):
        return rw.split(x, size, dim)
    ends = np.cumsum(size)
    return [index(x, dim, slice(int(e - n), int(e))) for e, n in zip(ends, size)]


@entry("squeeze", "squeeze/multiple")
def squeeze(x, dim=None):
    rank = len(x.shape)
    dims = range(rank) if dim is None else [d % rank for d in axes(dim)] if rank else []
    for d in sorted((d for d in dims if x.shape[d] == 1), reverse=True):
        x = rw.squeeze(x, d)
    return x


@entry("roll")
def roll(x, shifts, dims=None):
    if dims is None:
        return rw.reshape(rw.roll(rw.reshape(x, [-1]), axes(shifts)[0], 0), x.shape)
    for s, d in zip(axes(shifts), axes(dims)):
        x = rw.roll(x, s, d)
    return x


@entry("repeat_interleave")
def repeat_interleave(x, times=None, dim=None, **kw):
    times = kw.get("repeats", times)
    need(isinstance(times, int), "times that differ")
    x, dim = (rw.reshape(x, [-1]), 0) if dim is None else (x, dim)
    return rw.repeat_interleave(x, times, dim)


ENTRIES["gather"] = lambda x, dim, i, sparse_grad=False: rw.gather(x, dim, i)
ENTRIES["take_along_dim"] = lambda x, i, dim=None: skip("an index into all elements") if dim is None else rw.take_along_axis(x, i, dim)
ENTRIES["index_select"] = lambda x, dim, i: rw.index_select(x, dim, i)
ENTRIES["index_copy"] = lambda x, dim, i, y: rw.index_copy(x, dim, i, y)
ENTRIES["scatter_add"] = lambda x, dim, i, y: skip("an index smaller than the source") if i.shape != y.shape else rw.scatter_add(x, dim, i, y)
ENTRIES["index_add"] = lambda x, dim, i, y, alpha=1: rw.index_add(x, dim, i, y if alpha == 1 else y * alpha)
ENTRIES["masked_fill"] = lambda x, mask, value: rw.masked_fill(x, mask, value) if isinstance(value, (int, float)) else rw.where(mask, value, x)
ENTRIES["masked_select"] = lambda x, mask: rw.masked_select(*both(x, mask))
ENTRIES["where"] = lambda x, condition, y: rw.where(condition, x, y)
ENTRIES["nonzero"] = lambda x, as_tuple=False: skip("a tuple") if as_tuple else rw.nonzero(x)
ENTRIES["argwhere"] = rw.nonzero
ENTRIES["__getitem__"] = lambda x, key: x[key]


def both(x, y):
    shape = list(np.broadcast_shapes(tuple(x.shape), tuple(y.shape)))
    return rw.expand(x, shape), rw.expand(y, shape)


@entry("scatter")
def scatter(x, dim, i, y, reduce=None, **kw):
    need(reduce is None, "scatter with a product")
    need(not isinstance(y, rw.Tensor) or i.shape == y.shape, "an index smaller than the source")
    return rw.scatter(x, dim, i, y)


# ---- new tensors ----------------------------------------------------------------------------------

ENTRIES["zeros_like"] = lambda x, dtype=None, **kw: rw.cast(rw.zeros_like(x), dtype_of(dtype)) if dtype else rw.zeros_like(x)
ENTRIES["ones_like"] = lambda x, dtype=None, **kw: rw.ones(x.shape, dtype_of(dtype))
ENTRIES["zeros"] = lambda shape, dtype=None, **kw: rw.zeros(list(shape), dtype_of(dtype))
ENTRIES["ones"] = lambda shape, dtype=None, **kw: rw.ones(list(shape), dtype_of(dtype))
ENTRIES["eye"] = lambda n, m=-1, dtype=None, **kw: rw.eye(n, m, dtype_of(dtype))
ENTRIES["linspace"] = lambda a, b, n, dtype=None, **kw: rw.linspace(a, b, n, dtype_of(dtype))
ENTRIES["arange"] = lambda *a, dtype=None, **kw: rw.cast(rw.arange(*a), dtype_of(dtype)) if all(
    isinstance(v, int) for v in a) else skip("steps that are not whole")
