#!/usr/bin/env python3
"""Writes gpt.inc: what PyTorch computes for a small GPT-2, in f64.

Needs PyTorch (Debian: python3-torch). GPT-2 is written out here as published; parameters have the names of Hugging
Face's GPT2LMHeadModel, and matrices are [out, in]. Weights and tokens come from hashed.py.
Usage: make_gpt_goldens.py > gpt.inc"""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from hashed import hashed

LAYERS, HIDDEN, HEADS, VOCAB, POSITIONS = 2, 32, 4, 50, 16
BATCH, LENGTH, SAMPLES, PROMPT = 3, 12, 16, 5


def integers(name, shape, n):
    """Returns int64 values in [0, n)."""
    return torch.from_numpy(((hashed(name, shape) + 1) * np.float32(n / 2)).astype(np.int64))


def initial(name, shape):
    center = np.float32(len(shape) == 1 and name.endswith("weight"))
    return center + hashed(name, shape) * np.float32(0.25)


def group(**children):
    module = nn.Module()
    for name, child in children.items():
        module.add_module(name, child)
    return module


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(HIDDEN)
        self.attn = group(c_attn=nn.Linear(HIDDEN, 3 * HIDDEN), c_proj=nn.Linear(HIDDEN, HIDDEN))
        self.ln_2 = nn.LayerNorm(HIDDEN)
        self.mlp = group(c_fc=nn.Linear(HIDDEN, 4 * HIDDEN), c_proj=nn.Linear(4 * HIDDEN, HIDDEN))

    def forward(self, x):
        n, length, _ = x.shape
        q, k, v = (t.view(n, length, HEADS, -1).transpose(1, 2)
                   for t in self.attn.c_attn(self.ln_1(x)).split(HIDDEN, 2))
        scores = q @ k.transpose(2, 3) / math.sqrt(HIDDEN // HEADS)
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        y = scores.masked_fill(later, -math.inf).softmax(-1) @ v
        x = x + self.attn.c_proj(y.transpose(1, 2).reshape(n, length, HIDDEN))
        return x + self.mlp.c_proj(F.gelu(self.mlp.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.transformer = group(wte=nn.Embedding(VOCAB, HIDDEN), wpe=nn.Embedding(POSITIONS, HIDDEN),
                                 h=nn.ModuleList(Block() for _ in range(LAYERS)),
                                 ln_f=nn.LayerNorm(HIDDEN))

    def forward(self, ids):
        t = self.transformer
        x = t.wte(ids) + t.wpe.weight[:ids.shape[1]]
        for block in t.h:
            x = block(x)
        return t.ln_f(x) @ t.wte.weight.T


def numbers(values):
    return "{" + ", ".join(f"{v:.9g}" for v in np.asarray(values).ravel()) + "}"


def row(name, tensor):
    flat = tensor.detach().numpy().ravel()
    count = min(SAMPLES, flat.size)
    picked = [i * flat.size // count for i in range(count)]
    return f'    {{"{name}", {flat.size}, {np.linalg.norm(flat):.9g},\n     {numbers(flat[picked])}}},'


torch.set_num_threads(2)
model = Gpt().double()
for name, parameter in model.named_parameters():
    parameter.data = torch.from_numpy(initial(name, tuple(parameter.shape))).double()
ids = integers("ids", (BATCH, LENGTH), VOCAB)
targets = integers("targets", (BATCH, LENGTH), VOCAB)
targets[:, ::5] = -100  # not to be predicted
logits = model(ids)
loss = F.cross_entropy(logits.view(-1, VOCAB), targets.view(-1))
loss.backward()

tokens = ids[:, :PROMPT]
with torch.no_grad():
    for _ in range(LENGTH - PROMPT):
        tokens = torch.cat([tokens, model(tokens)[:, -1].argmax(-1, keepdim=True)], 1)

print("// Made by make_gpt_goldens.py; do not edit. Rows: name, elements, norm, samples.")
print("const std::vector<GoldenRow> outputs = {", row("logits", logits), row("loss", loss), "};", sep="\n")
print("const std::vector<GoldenRow> gradients = {")
print(*(row(n, p.grad) for n, p in model.named_parameters()), sep="\n")
print("};\n// The likeliest tokens after five.")
print("const std::vector<int32_t> generated =", numbers(tokens) + ";")
