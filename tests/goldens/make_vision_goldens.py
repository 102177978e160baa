#!/usr/bin/env python3
"""Writes vision.inc: what PyTorch computes for convolutions, resampling and pooling, in double precision.

Needs PyTorch (Debian: python3-torch). Inputs and the loss's weights come from an integer formula that
tests/ops/test_vision.cpp repeats. Tensors have channels last here and there, PyTorch sees them permuted.
Usage: make_vision_goldens.py > vision.inc"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


def some_values(shape, seed):
    """Returns float32 values in [-1, 1], as doubles."""
    i = np.arange(np.prod(shape, dtype=np.int64))
    values = ((i * 37 + seed * 53) % 101).astype(np.float32) / np.float32(50) - np.float32(1)
    return torch.from_numpy(values.reshape(shape).astype(np.float64))


def first(t):
    """Moves channels from the last to the second axis."""
    return t.permute(0, -1, *range(1, t.dim() - 1))


def last(t):
    return t.permute(0, *range(2, t.dim()), 1)


def emit(name, tensor):
    print('{"%s", {%s}},' % (name, ", ".join("%.9g" % v for v in tensor.detach().reshape(-1).tolist())))


def report(name, shapes, f):
    """Writes the output of f of tensors [N, ..., C] (the others as they are), and the gradients."""
    inputs = [some_values(s, 1 + k).requires_grad_() for k, s in enumerate(shapes)]
    y = last(f(*[first(t) if t.dim() > 2 else t for t in inputs]))
    (y * some_values(y.shape, 90)).sum().backward()
    emit(name, y)
    for k, x in enumerate(inputs):
        emit("%s gradient %d" % (name, k), x.grad)


def convolutions():
    report("conv1d same", [(2, 6, 3), (2, 4, 3), (2,)],
           lambda x, w, b: F.conv1d(x, w, b, padding="same"))
    for mode in ("reflect", "replicate", "circular"):
        def padded(x, w, mode=mode):
            layer = nn.Conv2d(2, 3, 3, padding=(1, 2), bias=False, padding_mode=mode).double()
            return layer._conv_forward(x, w, None)
        report("conv2d " + mode, [(1, 4, 5, 2), (3, 3, 3, 2)], padded)
    report("conv_transpose1d", [(2, 4, 4), (4, 3, 3), (6,)],
           lambda x, w, b: F.conv_transpose1d(x, w, b, 3, 1, 2, 2))
    report("conv_transpose2d", [(2, 3, 4, 4), (4, 3, 2, 2), (4,)],
           lambda x, w, b: F.conv_transpose2d(x, w, b, (2, 3), (1, 0), (1, 2), 2, (1, 2)))
    report("conv3d", [(2, 4, 3, 4, 4), (4, 2, 3, 2, 2), (4,)],
           lambda x, w, b: F.conv3d(x, w, b, (2, 1, 1), (1, 1, 0), (2, 1, 2), 2))


def sizes():
    for mode in ("nearest", "nearest-exact", "bilinear", "bicubic", "area"):
        for aligned in ((False, True) if mode in ("bilinear", "bicubic") else (None,)):
            name = mode + (" aligned" if aligned else "")
            for how, options in (("to more", {"size": (5, 7)}), ("to less", {"size": (2, 3)}),
                                 ("by factors", {"scale_factor": (1.7, 0.6)})):
                report("%s %s" % (name, how), [(1, 4, 5, 2)], lambda x: F.interpolate(
                    x, mode=mode, align_corners=aligned, **options))
    report("trilinear", [(1, 2, 3, 2, 2)], lambda x: F.interpolate(x, size=(3, 2, 5), mode="trilinear"))
    report("linear", [(2, 5, 3)], lambda x: F.interpolate(x, scale_factor=2, mode="linear"))
    report("pixel_shuffle", [(1, 2, 3, 8)], lambda x: F.pixel_shuffle(x, 2))
    report("pixel_unshuffle", [(1, 4, 2, 2)], lambda x: F.pixel_unshuffle(x, 2))
    report("adaptive_avg_pool2d", [(2, 5, 7, 2)], lambda x: F.adaptive_avg_pool2d(x, (3, 4)))
    report("adaptive_max_pool2d", [(2, 5, 7, 2)], lambda x: F.adaptive_max_pool2d(x, (3, 4)))
    report("adaptive_max_pool1d", [(2, 7, 2)], lambda x: F.adaptive_max_pool1d(x, 3))


print("// Made by make_vision_goldens.py; do not edit. Rows: name, values.")
convolutions()
sizes()
