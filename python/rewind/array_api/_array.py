# mypy: ignore-errors  (most functions are made in loops over names)
"""Arrays, their dtypes, and how functions of them are made."""
import builtins
import math

import numpy as _np

import rewind as rw


class dtype:
    """The kind of an array's elements."""

    def __init__(self, name, stored, kind):
        self.name, self.stored, self.kind, self.numpy = name, stored, kind, _np.dtype(name)

    def __repr__(self):
        return "rewind.array_api." + self.name


bool, uint8 = dtype("bool", rw.u8, "bool"), dtype("uint8", rw.u8, "unsigned integer")
int32, float32 = dtype("int32", rw.i32, "signed integer"), dtype("float32", rw.f32, "real floating")
_dtypes = {d.name: d for d in (bool, uint8, int32, float32)}
_order = [bool, uint8, int32, float32]


class Array:
    """A tensor as an array of the standard."""

    def __init__(self, tensor, dtype=None):
        self.tensor = tensor
        self.dtype = dtype or {"u8": uint8, "i32": int32, "f32": float32}[str(tensor.dtype)]

    shape = property(lambda self: tuple(self.tensor.shape))
    ndim = property(lambda self: len(self.tensor.shape))
    size = property(lambda self: math.prod(self.tensor.shape))
    device = property(lambda self: self.tensor.device)
    T = property(lambda self: self.mT if self.ndim == 2 else _fail(ValueError, "T needs two axes"))
    mT = property(lambda self: Array(rw.transpose(self.tensor, -1, -2), self.dtype))

    def __array_namespace__(self, /, *, api_version=None):
        import rewind.array_api
        return rewind.array_api

    def __dlpack__(self, /, *, stream=None, max_version=None, dl_device=None, copy=None):
        return _np.ascontiguousarray(self._numpy()).__dlpack__()

    def __dlpack_device__(self, /):
        return self.tensor.__dlpack_device__()

    def __array__(self, dtype=None, copy=None):
        return _np.asarray(self._numpy(), dtype=dtype)

    def to_device(self, device, /, *, stream=None):
        return Array(self.tensor.to(device), self.dtype)

    def _numpy(self):
        return self.tensor.numpy().astype(self.dtype.numpy, copy=False)

    def _item(self, kind):
        if self.size != 1 or self.ndim:
            raise TypeError(f"one element makes a {kind.__name__}, got the shape {self.shape}")
        return self._numpy()[()].item()

    def __bool__(self, /):
        return builtins.bool(self._item(builtins.bool))

    def __int__(self, /):
        return int(self._item(int))

    def __float__(self, /):
        return float(self._item(float))

    def __complex__(self, /):
        return complex(self._item(complex))

    def __index__(self, /):
        if self.dtype.kind not in ("signed integer", "unsigned integer"):
            raise TypeError(f"an index is a whole number, got {self.dtype}")
        return int(self._item(int))

    def __len__(self, /):
        return self.shape[0] if self.ndim else _fail(TypeError, "an array without axes has no length")

    def __repr__(self):
        return f"Array({_np.array2string(self._numpy(), separator=', ')}, dtype={self.dtype.name})"

    def __getitem__(self, key, /):
        return Array(self.tensor[_key(key)], self.dtype)

    def __setitem__(self, key, value, /):
        value = value.tensor if isinstance(value, Array) else _scalar(value, self.dtype)
        self.tensor[_key(key)] = rw.cast(value, self.dtype.stored)

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def __pos__(self, /):
        return self

    __hash__ = None


def _fail(kind, text):
    raise kind(text)


def _key(key):
    def one(k):
        return k.tensor if isinstance(k, Array) and k.ndim else builtins.bool(k) if isinstance(k, Array) and k.dtype is bool else \
            int(k) if isinstance(k, Array) else k
    return tuple(map(one, key)) if isinstance(key, tuple) else one(key)


def _scalar(value, dtype):
    if isinstance(value, float) and dtype.kind != "real floating":
        raise TypeError(f"a float is no element of {dtype}")
    if isinstance(value, builtins.bool) != (dtype is bool) and not (isinstance(value, builtins.bool) and dtype is not bool):
        raise TypeError(f"{value!r} is no element of {dtype}")
    return rw.tensor(_np.array(value, dtype.numpy).astype(_np.uint8 if dtype is bool else dtype.numpy))


def result_type(*of):
    """The dtype of arrays, dtypes and numbers together."""
    found = [a if isinstance(a, dtype) else a.dtype for a in of if isinstance(a, (dtype, Array))]
    if not found:
        raise ValueError("result_type needs an array or a dtype")
    best = builtins.max(found, key=_order.index)
    if builtins.any((d is bool) != (best is bool) for d in found) or builtins.any((d is float32) != (best is float32) for d in found):
        raise TypeError(f"{found} have no common dtype")
    for a in of:
        if not isinstance(a, (dtype, Array)):
            kind = bool if isinstance(a, builtins.bool) else int32 if isinstance(a, int) else float32
            if _order.index(kind) > _order.index(best) and not (kind is int32 and best is uint8):
                raise TypeError(f"{a!r} is no element of {best}")
    return best


def _tensors(*of):
    kind = result_type(*of)
    return kind, [rw.cast(a.tensor, kind.stored) if isinstance(a, Array) else _scalar(a, kind) for a in of]


_numeric, _whole, _floats = (uint8, int32, float32), (bool, uint8, int32), (float32,)


def _need(name, kind, kinds):
    if kind not in kinds:
        raise TypeError(f"{name} takes {', '.join(k.name for k in kinds)}, got {kind.name}")


def _unary(name, f, kinds, result=None):
    def function(x, /):
        _need(name, x.dtype, kinds)
        return Array(f(x.tensor), result or x.dtype)
    return _named(function, name)


def _binary(name, f, kinds, result=None):
    def function(x1, x2, /):
        kind, (a, b) = _tensors(x1, x2)
        _need(name, kind, kinds)
        return Array(f(a, b), result or kind)
    return _named(function, name)


def _named(function, name):
    function.__name__ = function.__qualname__ = name
    return function


def _axes(x, axis):
    return list(range(x.ndim)) if axis is None else [axis] if isinstance(axis, int) else list(axis)
