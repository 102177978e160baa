#!/usr/bin/env python3
"""Writes layers.inc: what PyTorch computes for normalising and recurrent layers, in double precision.

Needs PyTorch (Debian: python3-torch). Inputs, parameters and the loss's weights come from an integer
formula that tests/nn/test_layer_goldens.cpp repeats.
Usage: make_layer_goldens.py > layers.inc"""

import numpy as np
import torch
from torch import nn


def some_values(shape, seed, scale=1.0):
    """Returns float32 values in [-scale, scale], as doubles."""
    i = np.arange(np.prod(shape, dtype=np.int64))
    values = ((i * 37 + seed * 53) % 101).astype(np.float32) / np.float32(50) - np.float32(1)
    return torch.from_numpy((values * np.float32(scale)).reshape(shape).astype(np.float64))


def leaf(shape, seed):
    return some_values(shape, seed).requires_grad_()


def emit(name, tensor):
    values = ", ".join("%.9g" % v for v in tensor.detach().reshape(-1).tolist())
    print('{"%s", {%s}},' % (name, values))


def report(name, outputs, inputs, parameters):
    """Writes outputs, and gradients of the sum of the outputs times fixed weights."""
    loss = sum((y * some_values(y.shape, 90 + k)).sum() for k, y in enumerate(outputs))
    loss.backward()
    for k, y in enumerate(outputs):
        emit("%s output %d" % (name, k), y)
    for k, x in enumerate(inputs):
        emit("%s input %d" % (name, k), x.grad)
    for key, p in parameters:
        emit("%s %s" % (name, key), p.grad)


def set_parameters(module):
    for k, p in enumerate(module.parameters()):
        p.data = some_values(p.shape, 20 + k, 0.5)
    return list(module.named_parameters())


def norms():
    layer = nn.LayerNorm(24, eps=1e-12).double()
    parameters, x = set_parameters(layer), leaf((6, 24), 1)
    report("layer_norm", [layer(x)], [x], parameters)

    x, weight = leaf((6, 24), 2), nn.Parameter(some_values((24,), 20, 0.5))
    y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight
    report("rms_norm", [y], [x], [("weight", weight)])

    layer = nn.GroupNorm(4, 8).double()
    parameters, x = set_parameters(layer), leaf((2, 5, 3, 8), 3)  # NHWC
    y = layer(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
    report("group_norm", [y], [x], parameters)

    for channels in (8, 5):
        layer = nn.BatchNorm2d(channels).double()
        parameters, x = set_parameters(layer), leaf((3, 5, 7, channels), 8)
        y = layer(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        report("batch_norm %d" % channels, [y], [x], parameters)
        emit("batch_norm %d running mean" % channels, layer.running_mean)
        emit("batch_norm %d running var" % channels, layer.running_var)
        layer.eval()
        layer.zero_grad()
        x = leaf((2, 3, 2, channels), 6)
        y = layer(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        report("batch_norm %d evaluated" % channels, [y], [x], parameters)

    x = leaf((2, 11, 9, 6), 7)  # channels that do not fill words, rows that are summed in parts
    layer = nn.GroupNorm(2, 6).double()
    parameters = set_parameters(layer)
    y = layer(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
    report("group_norm odd", [y], [x], parameters)

    layer = nn.InstanceNorm2d(8, affine=True).double()
    parameters, x = set_parameters(layer), leaf((2, 5, 3, 8), 5)
    y = layer(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
    report("instance_norm", [y], [x], parameters)

    layer, x = nn.InstanceNorm2d(5).double(), leaf((2, 4, 3, 5), 9)
    y = layer(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
    report("instance_norm plain", [y], [x], [])


def recurrent():
    for name, options in (("plain", {}), ("deep", {"num_layers": 2, "bidirectional": True}),
                          ("first", {"batch_first": True, "bias": False})):
        states = options.get("num_layers", 1) * (2 if "bidirectional" in options else 1)
        shape = (2, 4, 3) if "batch_first" in options else (4, 2, 3)
        for kind, module in (("lstm", nn.LSTM), ("gru", nn.GRU)):
            layer = module(3, 5, **options).double()
            parameters = set_parameters(layer)
            x, h, c = leaf(shape, 4), leaf((states, 2, 5), 5), leaf((states, 2, 5), 6)
            if kind == "lstm":
                y, (h1, c1) = layer(x, (h, c))
                report("lstm " + name, [y, h1, c1], [x, h, c], parameters)
            else:
                y, h1 = layer(x, h)
                report("gru " + name, [y, h1], [x, h], parameters)


print("// Made by make_layer_goldens.py; do not edit. Rows: name, values.")
norms()
recurrent()
