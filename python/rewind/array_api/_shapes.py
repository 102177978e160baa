# mypy: ignore-errors  (most functions are made in loops over names)
"""Shapes and places."""
import builtins

import numpy as _np

import rewind as rw
from rewind.array_api._array import Array, _axes, _named, _need, _numeric, _tensors
from rewind.array_api._making import _made


def meshgrid(*arrays, indexing="xy"):
    shape = [a.size for a in arrays]
    grids = [broadcast_to(reshape(a, [1] * i + [-1] + [1] * (len(shape) - 1 - i)), shape) for i, a in enumerate(arrays)]
    swapped = indexing == "xy" and len(shape) > 1
    return [permute_dims(g, (1, 0, *range(2, len(shape)))) if swapped else g for g in grids]


def reshape(x, /, shape, *, copy=None):
    return Array(rw.reshape(x.tensor, list(shape)), x.dtype)


def permute_dims(x, /, axes):
    return Array(rw.permute(x.tensor, list(axes)), x.dtype)


def matrix_transpose(x, /):
    return Array(rw.transpose(x.tensor, -1, -2), x.dtype)


def moveaxis(x, source, destination, /):
    a, b = ([v % x.ndim for v in ([t] if isinstance(t, int) else t)] for t in (source, destination))
    order = [i for i in range(x.ndim) if i not in a]
    for to, of in sorted(zip(b, a)):
        order.insert(to, of)
    return permute_dims(x, order)


def expand_dims(x, /, *, axis=0):
    if not -x.ndim - 1 <= axis <= x.ndim:
        raise IndexError(f"axis {axis} is none of {x.ndim + 1}")
    return Array(rw.unsqueeze(x.tensor, axis), x.dtype)


def squeeze(x, /, axis):
    axes = sorted((a % x.ndim for a in ((axis,) if isinstance(axis, int) else axis)), reverse=True)
    if builtins.any(x.shape[a] != 1 for a in axes):
        raise ValueError(f"axes {axes} of {x.shape} are not 1")
    for a in axes:
        x = Array(rw.squeeze(x.tensor, a), x.dtype)
    return x


def broadcast_to(x, /, shape):
    return Array(rw.expand(x.tensor, list(shape)), x.dtype)


def broadcast_arrays(*arrays):
    shape = _np.broadcast_shapes(*(a.shape for a in arrays))
    return [broadcast_to(a, shape) for a in arrays]


def concat(arrays, /, *, axis=0):
    kind, tensors = _tensors(*arrays)
    if axis is None:
        return Array(rw.concat([rw.reshape(t, [-1]) for t in tensors], 0), kind)
    return Array(rw.concat(tensors, axis), kind)


def stack(arrays, /, *, axis=0):
    kind, tensors = _tensors(*arrays)
    return Array(rw.stack(tensors, axis), kind)


def unstack(x, /, *, axis=0):
    return tuple(Array(t, x.dtype) for t in rw.unbind(x.tensor, axis)) if x.shape[axis] else ()


def flip(x, /, *, axis=None):
    return Array(rw.flip(x.tensor, _axes(x, axis)), x.dtype) if _axes(x, axis) else x


def roll(x, /, shift, *, axis=None):
    if axis is None:
        return reshape(Array(rw.roll(rw.reshape(x.tensor, [-1]), shift if isinstance(shift, int) else builtins.sum(shift), 0), x.dtype), x.shape)
    shifts = [shift] * len(_axes(x, axis)) if isinstance(shift, int) else shift
    t = x.tensor
    for s, a in zip(shifts, _axes(x, axis)):
        t = rw.roll(t, s, a)
    return Array(t, x.dtype)


def tile(x, repetitions, /):
    return Array(rw.tile(x.tensor, list(repetitions)), x.dtype) if repetitions else x


def repeat(x, repeats, /, *, axis=None):
    x, axis = (reshape(x, (-1,)), 0) if axis is None else (x, axis)
    if isinstance(repeats, int):
        return Array(rw.repeat_interleave(x.tensor, repeats, axis), x.dtype)
    places = _np.repeat(_np.arange(x.shape[axis]), repeats._numpy())
    return take(x, _made(places), axis=axis)


# ---- places ----------------------------------------------------------------------------------------

def take(x, indices, /, *, axis=None):
    axis = 0 if axis is None else axis
    t = rw.cast(indices.tensor, rw.i32)
    return Array(rw.index_select(x.tensor, axis, rw.where(t < 0, t + x.shape[axis], t)), x.dtype)


def take_along_axis(x, indices, /, *, axis=-1):
    t = rw.cast(indices.tensor, rw.i32)
    return Array(rw.take_along_axis(x.tensor, rw.where(t < 0, t + x.shape[axis], t), axis), x.dtype)


def where(condition, x1, x2, /):
    kind, (a, b) = _tensors(x1, x2)
    return Array(rw.where(condition.tensor, a, b), kind)


def nonzero(x, /):
    if not x.ndim:
        raise ValueError("nonzero needs an axis")
    return tuple(Array(t) for t in rw.unbind(rw.nonzero(x.tensor), 1))


def _arg(name, f):
    def function(x, /, *, axis=None, keepdims=False):
        _need(name, x.dtype, _numeric)
        y = f(rw.reshape(x.tensor, [-1]), 0) if axis is None else f(x.tensor, axis)
        if keepdims:
            y = rw.reshape(y, [1] * x.ndim) if axis is None else rw.unsqueeze(y, axis)
        return Array(y)
    return _named(function, name)


argmax, argmin = _arg("argmax", rw.argmax), _arg("argmin", rw.argmin)


def sort(x, /, *, axis=-1, descending=False, stable=True):
    return Array(rw.sort(x.tensor, axis, descending)[0], x.dtype)


def argsort(x, /, *, axis=-1, descending=False, stable=True):
    return Array(rw.argsort(x.tensor, axis, descending))


def searchsorted(x1, x2, /, *, side="left", sorter=None):
    x1 = x1 if sorter is None else take(x1, sorter)
    kind, (a, b) = _tensors(x1, x2)
    less_ = rw.less if side == "left" else rw.less_equal
    return Array(rw.sum(rw.cast(less_(rw.reshape(a, [1] * x2.ndim + [-1]), rw.unsqueeze(b, -1)), rw.i32), -1))
