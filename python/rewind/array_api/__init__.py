# mypy: ignore-errors  (most functions are made in loops over names)
"""Rewind as an array namespace of the Python array API standard (data-apis.org/array-api): xp = rewind.array_api.

It has what the standard asks of an array library, in the dtypes that Rewind has: bool, uint8, int32 and float32. Arrays
share the memory of tensors: Array(tensor), array.tensor. Left out are complex numbers, 64 bits, linalg and fft.
"""
import math

from rewind.array_api._array import Array, _dtypes, bool, dtype, float32, int32, result_type, uint8  # noqa: F401
from rewind.array_api._elementwise import *  # noqa: F403
from rewind.array_api._making import *  # noqa: F403
from rewind.array_api._shapes import *  # noqa: F403
from rewind.array_api._sums import *  # noqa: F403
from rewind.array_api._making import isdtype

__array_api_version__ = "2024.12"
e, pi, inf, nan, newaxis = math.e, math.pi, math.inf, math.nan, None


class _Info:
    """Says what this namespace can do."""

    def capabilities(self):
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 6}

    def default_device(self):
        return None

    def default_dtypes(self, *, device=None):
        return {"real floating": float32, "complex floating": None, "integral": int32, "indexing": int32}

    def devices(self):
        return [None]

    def dtypes(self, *, device=None, kind=None):
        return {n: d for n, d in _dtypes.items() if kind is None or isdtype(d, kind)}


def __array_namespace_info__():
    return _Info()
