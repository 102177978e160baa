# mypy: ignore-errors  (most functions are made in loops over names)
"""Sums along axes, products of matrices, and sets."""
import builtins
import math

import numpy as _np

import rewind as rw
from rewind.array_api._array import Array, _axes, _floats, _named, _need, _numeric, _tensors, bool, float32, int32
from rewind.array_api._elementwise import sqrt, subtract
from rewind.array_api._making import _made, astype, full
from rewind.array_api._shapes import concat


def _reduction(name, f, kinds, result=None):
    def function(x, /, *, axis=None, keepdims=False):
        _need(name, x.dtype, kinds)
        axes = _axes(x, axis)
        return Array(f(x.tensor, axes, keepdims), result or x.dtype) if axes else Array(x.tensor, result or x.dtype)
    return _named(function, name)


max, min = _reduction("max", rw.max, _numeric), _reduction("min", rw.min, _numeric)
mean = _reduction("mean", rw.mean, _floats)


def _truth(name, f):
    def function(x, /, *, axis=None, keepdims=False):
        t, axes = astype(x, bool, copy=False).tensor, _axes(x, axis)
        return Array(f(t, axes, keepdims) if axes else t, bool)
    return _named(function, name)


all, any = _truth("all", rw.all), _truth("any", rw.any)


def _total(name, f):
    def function(x, /, *, axis=None, dtype=None, keepdims=False):
        kind = dtype or (float32 if x.dtype is float32 else int32)
        t, axes = rw.cast(x.tensor, kind.stored), _axes(x, axis)
        return Array(f(t, axes, keepdims) if axes else t, kind)
    return _named(function, name)


sum, prod = _total("sum", rw.sum), _total("prod", rw.prod)


def var(x, /, *, axis=None, correction=0.0, keepdims=False):
    axes = _axes(x, axis)
    n = math.prod(x.shape[a] for a in axes)
    centred = x.tensor - rw.mean(x.tensor, axes, True) if axes else x.tensor * 0.0
    total = rw.sum(centred * centred, axes, keepdims) if axes else centred
    return Array(total / float(n - correction) if n != correction else total / rw.zeros_like(total))


def std(x, /, *, axis=None, correction=0.0, keepdims=False):
    return sqrt(var(x, axis=axis, correction=correction, keepdims=keepdims))  # noqa: F821


def count_nonzero(x, /, *, axis=None, keepdims=False):
    return sum(astype(astype(x, bool, copy=False), int32), axis=axis, keepdims=keepdims)


def _cumulative(name, f, first):
    def function(x, /, *, axis=None, dtype=None, include_initial=False):
        axis = 0 if axis is None else axis
        kind = dtype or (float32 if x.dtype is float32 else int32)
        sums = f(rw.cast(x.tensor, rw.f32 if kind is float32 else rw.i32), axis)
        y = Array(rw.cast(sums, kind.stored), kind)
        if include_initial:
            shape = list(x.shape)
            shape[axis] = 1
            y = concat([full(shape, first, dtype=kind), y], axis=axis)
        return y
    return _named(function, name)


cumulative_sum, cumulative_prod = _cumulative("cumulative_sum", rw.cumsum, 0), _cumulative("cumulative_prod", rw.cumprod, 1)


def diff(x, /, *, axis=-1, n=1, prepend=None, append=None):
    x = concat([a for a in (prepend, x, append) if a is not None], axis=axis)
    for _ in range(n):
        size = x.shape[axis]
        x = subtract(*(Array(rw.index_select(x.tensor, axis, rw.arange(b, b + builtins.max(0, size - 1))), x.dtype)  # noqa: F821
                       for b in (1, 0)))
    return x


def vecdot(x1, x2, /, *, axis=-1):
    kind, (a, b) = _tensors(x1, x2)
    _need("vecdot", kind, _numeric)
    return Array(rw.cast(rw.sum(a * b, axis), kind.stored), kind)


def tensordot(x1, x2, /, *, axes=2):
    kind, (a, b) = _tensors(x1, x2)
    left, right = (list(range(x1.ndim - axes, x1.ndim)), list(range(axes))) if isinstance(axes, int) else axes
    left, right = [i % x1.ndim for i in left], [i % x2.ndim for i in right]
    keep = [i for i in range(x1.ndim) if i not in left], [i for i in range(x2.ndim) if i not in right]
    n = math.prod(x1.shape[i] for i in left)
    shape = [x1.shape[i] for i in keep[0]] + [x2.shape[i] for i in keep[1]]
    a = rw.reshape(rw.permute(a, keep[0] + left) if x1.ndim else a, [math.prod(x1.shape[i] for i in keep[0]), n])
    b = rw.reshape(rw.permute(b, right + keep[1]) if x2.ndim else b, [n, math.prod(x2.shape[i] for i in keep[1])])
    return Array(rw.cast(rw.reshape(rw.matmul(rw.cast(a, rw.f32), rw.cast(b, rw.f32)), shape), kind.stored), kind)


# ---- sets ------------------------------------------------------------------------------------------

def unique_values(x, /):
    return _made(_np.unique(x._numpy(), equal_nan=False), x.dtype)
