"""Values that the scripts here and tests/fixtures/hashed.h both compute, so that no file has to hold them."""

import numpy as np


def hashed(name, shape):
    """Returns float32 values in [-1, 1)."""
    seed = 2166136261
    for byte in name.encode():
        seed = (seed ^ byte) * 16777619 % 2**32
    x = np.arange(np.prod(shape, dtype=np.int64), dtype=np.uint32) * np.uint32(0x9E3779B1)
    x += np.uint32(seed)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x ^= x >> np.uint32(shift)
        x *= np.uint32(factor)
    x ^= x >> np.uint32(16)
    return ((x >> np.uint32(8)).astype(np.float32) * np.float32(2**-23) - 1).reshape(shape)
