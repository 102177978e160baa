#!/usr/bin/env python3
"""Writes bert.inc: what PyTorch computes for a small BERT with padding, in f64.

Needs PyTorch (Debian: python3-torch). BERT is written out here as published; parameters have the names of
Hugging Face's BertForPreTraining. Weights and tokens come from hashed.py.
Usage: make_bert_goldens.py > bert.inc"""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from hashed import hashed

LAYERS, HIDDEN, HEADS, INNER, VOCAB, POSITIONS = 2, 32, 4, 64, 50, 16
BATCH, LENGTH, SAMPLES = 3, 12, 24
LENGTHS = torch.tensor([12, 9, 5])


def integers(name, shape, n):
    """Returns int64 values in [0, n)."""
    return torch.from_numpy(((hashed(name, shape) + 1) * np.float32(n / 2)).astype(np.int64))


def initial(name, shape):
    values = hashed(name, shape)
    if len(shape) > 1:
        return values * np.float32(0.25)
    return np.float32("LayerNorm.weight" in name) + values * np.float32(0.25)


def norm():
    return nn.LayerNorm(HIDDEN, eps=1e-12)


def group(**children):
    module = nn.Module()
    for name, child in children.items():
        module.add_module(name, child)
    return module


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        heads = {n: nn.Linear(HIDDEN, HIDDEN) for n in ("query", "key", "value")}
        self.attention = group(self=group(**heads),
                               output=group(dense=nn.Linear(HIDDEN, HIDDEN), LayerNorm=norm()))
        self.intermediate = group(dense=nn.Linear(HIDDEN, INNER))
        self.output = group(dense=nn.Linear(INNER, HIDDEN), LayerNorm=norm())

    def forward(self, x, mask):
        heads = getattr(self.attention, "self")

        def split(linear):
            return linear(x).view(BATCH, LENGTH, HEADS, -1).transpose(1, 2)

        q, k, v = split(heads.query), split(heads.key), split(heads.value)
        scores = q @ k.transpose(2, 3) / math.sqrt(HIDDEN // HEADS)
        weights = scores.masked_fill(~mask[:, None, None], -math.inf).softmax(-1)
        y = (weights @ v).transpose(1, 2).reshape(BATCH, LENGTH, HIDDEN)
        out = self.attention.output
        x = out.LayerNorm(x + out.dense(y))
        return self.output.LayerNorm(x + self.output.dense(F.gelu(self.intermediate.dense(x))))


class BertForPreTraining(nn.Module):
    def __init__(self):
        super().__init__()
        embeddings = group(word_embeddings=nn.Embedding(VOCAB, HIDDEN),
                           position_embeddings=nn.Embedding(POSITIONS, HIDDEN),
                           token_type_embeddings=nn.Embedding(2, HIDDEN), LayerNorm=norm())
        layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.bert = group(embeddings=embeddings, encoder=group(layer=layers),
                          pooler=group(dense=nn.Linear(HIDDEN, HIDDEN)))
        predictions = group(transform=group(dense=nn.Linear(HIDDEN, HIDDEN), LayerNorm=norm()))
        predictions.bias = nn.Parameter(torch.empty(VOCAB))
        self.cls = group(predictions=predictions, seq_relationship=nn.Linear(HIDDEN, 2))

    def forward(self, ids, types):
        e = self.bert.embeddings
        x = e.LayerNorm(e.word_embeddings(ids) + e.token_type_embeddings(types) +
                        e.position_embeddings.weight[:LENGTH])
        for layer in self.bert.encoder.layer:
            x = layer(x, torch.arange(LENGTH) < LENGTHS[:, None])
        p = self.cls.predictions
        tokens = p.transform.LayerNorm(F.gelu(p.transform.dense(x)))
        tokens = tokens @ e.word_embeddings.weight.T + p.bias
        return x, tokens, self.cls.seq_relationship(torch.tanh(self.bert.pooler.dense(x[:, 0])))


def numbers(values):
    return "{" + ", ".join(f"{v:.9g}" for v in np.asarray(values).ravel()) + "}"


def row(name, tensor):
    flat = tensor.detach().numpy().ravel()
    count = min(SAMPLES, flat.size)
    picked = [i * flat.size // count for i in range(count)]
    return f'    {{"{name}", {flat.size}, {np.linalg.norm(flat):.9g},\n     {numbers(flat[picked])}}},'


torch.set_num_threads(2)
model = BertForPreTraining().double()
for name, parameter in model.named_parameters():
    parameter.data = torch.from_numpy(initial(name, tuple(parameter.shape))).double()
ids = integers("ids", (BATCH, LENGTH), VOCAB)
types = (torch.arange(LENGTH) >= LENGTHS[:, None] // 2).long()
# Every third token is to be predicted, but not the padding.
wanted = (torch.arange(LENGTH) % 3 == 1) & (torch.arange(LENGTH) < LENGTHS[:, None])
targets = integers("targets", (BATCH, LENGTH), VOCAB)[wanted]
hidden, tokens, sentences = model(ids, types)
token_loss = F.cross_entropy(tokens[wanted], targets)
sentence_loss = F.cross_entropy(sentences, torch.tensor([0, 1, 1]))
(token_loss + sentence_loss).backward()

print("// Made by make_bert_goldens.py; do not edit. Rows: name, elements, norm, samples.")
print("const std::vector<GoldenRow> outputs = {")
print(row("hidden", hidden), row("token logits", tokens[wanted]), row("sentence logits", sentences),
      row("token loss", token_loss), row("sentence loss", sentence_loss), sep="\n")
print("};\nconst std::vector<GoldenRow> gradients = {")
print(*(row(n, p.grad) for n, p in model.named_parameters()), sep="\n")
print("};")
