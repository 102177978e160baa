#!/usr/bin/env python3
"""Writes transformer.inc: what PyTorch's nn.Transformer computes, post-norm with ReLU and pre-norm with GELU, in f64.

Needs PyTorch (Debian: python3-torch). Weights and inputs come from hashed.py.
Usage: make_transformer_goldens.py > transformer.inc"""

import numpy as np
import torch
from torch import nn

from hashed import hashed

MODEL, HEADS, INNER, LAYERS = 24, 3, 40, 2
BATCH, SOURCE, TARGET, SAMPLES = 2, 9, 7, 8
LENGTHS = torch.tensor([9, 6])


def initial(name, shape):
    center = np.float32(len(shape) == 1 and name.endswith("weight"))
    return center + hashed(name, shape) * np.float32(0.25)


def numbers(values):
    return "{" + ", ".join(f"{v:.9g}" for v in np.asarray(values).ravel()) + "}"


def row(name, tensor):
    flat = tensor.detach().numpy().ravel()
    count = min(SAMPLES, flat.size)
    picked = [i * flat.size // count for i in range(count)]
    return f'    {{"{name}", {flat.size}, {np.linalg.norm(flat):.9g},\n     {numbers(flat[picked])}}},'


def rows(norm_first, activation):
    model = nn.Transformer(MODEL, HEADS, LAYERS, LAYERS, INNER, 0.0, activation, batch_first=True,
                           norm_first=norm_first).double()
    for name, parameter in model.named_parameters():
        parameter.data = torch.from_numpy(initial(name, tuple(parameter.shape))).double()
    source = torch.from_numpy(hashed("source", (BATCH, SOURCE, MODEL))).double().requires_grad_()
    target = torch.from_numpy(hashed("target", (BATCH, TARGET, MODEL))).double().requires_grad_()
    padding = torch.arange(SOURCE) >= LENGTHS[:, None]
    later = torch.ones(TARGET, TARGET, dtype=torch.bool).triu(1)
    y = model(source, target, tgt_mask=later, src_key_padding_mask=padding,
              memory_key_padding_mask=padding)
    # The padding's own rows of the source go nowhere.
    (y * torch.from_numpy(hashed("weights", tuple(y.shape))).double()).sum().backward()
    yield row("output", y)
    yield row("source", source.grad)
    yield row("target", target.grad)
    for name, p in model.named_parameters():
        yield row(name, p.grad)


torch.set_num_threads(2)
print("// Made by make_transformer_goldens.py; do not edit. Rows: name, elements, norm, samples.")
for name, arguments in (("post_norm", (False, "relu")), ("pre_norm", (True, "gelu"))):
    print(f"const std::vector<GoldenRow> {name} = {{", *rows(*arguments), "};", sep="\n")
