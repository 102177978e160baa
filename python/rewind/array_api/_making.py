# mypy: ignore-errors  (most functions are made in loops over names)
"""Making arrays, and casting them."""
import builtins

import numpy as _np

import rewind as rw
from rewind.array_api._array import Array, _named, bool, float32, int32, result_type, uint8


def _made(array, kind=None):
    kind = kind or (bool if array.dtype.kind == "b" else float32 if array.dtype.kind == "f" else uint8 if array.dtype == _np.uint8 else int32)
    return Array(rw.tensor(_np.ascontiguousarray(array.astype(kind.numpy)).astype(_np.uint8 if kind is bool else kind.numpy)
                           .reshape(array.shape)), kind)


def asarray(obj, /, *, dtype=None, device=None, copy=None):
    if isinstance(obj, Array):
        if copy is False and dtype not in (None, obj.dtype):
            raise ValueError("another dtype needs a copy")
        return astype(obj, dtype or obj.dtype, copy=copy is True)
    if isinstance(obj, rw.Tensor):
        return astype(Array(obj), dtype or Array(obj).dtype, copy=copy is True)

    def plain(o):
        return [plain(v) for v in o] if isinstance(o, (list, tuple)) else o._numpy() if isinstance(o, Array) else o
    array = _np.asarray(plain(obj))
    if dtype is None and array.dtype.kind == "i" and array.size and (array != array.astype(_np.int32)).any():
        raise OverflowError("int32 is the widest whole number here")
    return _made(array, dtype)


def full(shape, fill_value, *, dtype=None, device=None):
    kind = dtype or (bool if isinstance(fill_value, builtins.bool) else int32 if isinstance(fill_value, int) else float32)
    return _made(_np.full(shape, fill_value, kind.numpy), kind)


def zeros(shape, *, dtype=None, device=None):
    return full(shape, 0, dtype=dtype or float32)


def ones(shape, *, dtype=None, device=None):
    return full(shape, 1, dtype=dtype or float32)


empty = _named(lambda shape, *, dtype=None, device=None: zeros(shape, dtype=dtype), "empty")


def full_like(x, /, fill_value, *, dtype=None, device=None):
    return full(x.shape, fill_value, dtype=dtype or x.dtype)


def zeros_like(x, /, *, dtype=None, device=None):
    return full(x.shape, 0, dtype=dtype or x.dtype)


def ones_like(x, /, *, dtype=None, device=None):
    return full(x.shape, 1, dtype=dtype or x.dtype)


empty_like = _named(lambda x, /, *, dtype=None, device=None: zeros_like(x, dtype=dtype), "empty_like")


def arange(start, /, stop=None, step=1, *, dtype=None, device=None):
    start, stop = (0, start) if stop is None else (start, stop)
    whole = builtins.all(isinstance(v, int) for v in (start, stop, step))
    return _made(_np.arange(start, stop, step, _np.float64 if not whole else _np.int64), dtype or (int32 if whole else float32))


def linspace(start, stop, /, num, *, dtype=None, device=None, endpoint=True):
    return _made(_np.linspace(start, stop, num, endpoint=endpoint), dtype or float32)


def eye(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None):
    return _made(_np.eye(n_rows, n_cols, k), dtype or float32)


def tril(x, /, *, k=0):
    return Array(rw.tril(x.tensor, k), x.dtype)


def triu(x, /, *, k=0):
    return Array(rw.triu(x.tensor, k), x.dtype)


def from_dlpack(x, /, *, device=None, copy=None):
    return x if isinstance(x, Array) and not copy else asarray(_np.from_dlpack(x), copy=copy)


def astype(x, dtype, /, *, copy=True, device=None):
    if x.dtype is dtype:
        return Array(rw.tensor(x.tensor.numpy().copy()), dtype) if copy else x
    return Array(rw.not_equal(x.tensor, rw.zeros_like(x.tensor)) if dtype is bool else rw.cast(x.tensor, dtype.stored), dtype)


def can_cast(from_, to, /):
    try:
        return result_type(from_, to) is to
    except TypeError:
        return False


class finfo:
    """Limits of float32."""

    def __init__(self, type, /):
        self.bits, self.eps, self.max, self.min, self.smallest_normal, self.dtype = (
            32, 2.0**-23, 3.4028234663852886e38, -3.4028234663852886e38, 2.0**-126, float32)


class iinfo:
    """Limits of whole numbers."""

    def __init__(self, type, /):
        kind = type.dtype if isinstance(type, Array) else type
        self.bits, self.max, self.min, self.dtype = (8, 255, 0, kind) if kind is uint8 else (32, 2**31 - 1, -(2**31), kind)


def isdtype(dtype, kind):
    if isinstance(kind, tuple):
        return builtins.any(isdtype(dtype, k) for k in kind)
    if not isinstance(kind, str):
        return dtype is kind
    if kind not in ("bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating", "numeric"):
        raise ValueError(f"there is no kind {kind!r}")
    return kind == dtype.kind or kind == "integral" and dtype.kind.endswith("integer") or kind == "numeric" and dtype is not bool
