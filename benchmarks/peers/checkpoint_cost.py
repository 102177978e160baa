#!/usr/bin/env python3
"""What torch.utils.checkpoint saves and costs on the CPU: the small networks of `./rewind memory --row real`.

f32, gradients only, images channels_last, every block of the network in a checkpoint. The peak is the most
bytes that PyTorch's own allocator held at once in a step, parameters and batch included. Steps with and without
checkpoints are timed in turn. Prints a line per model: both peaks in MB (10^6 bytes), the plain step's seconds
(median), time on top in % (median, least, most).
Needs PyTorch (Debian: python3-torch). Usage: checkpoint_cost.py [ROUNDS]"""

import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from plain_step import Layer, most_allocated


class ResidualBlock(nn.Module):
    """Pre-activated, without normalisation: relu, conv, relu, conv, and the input on top."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1)
        self.shortcut = None if inputs == outputs else nn.Conv2d(inputs, outputs, 1, stride)

    def forward(self, x):
        y = self.conv2(F.relu(self.conv1(F.relu(x))))
        return y + (x if self.shortcut is None else self.shortcut(x))


class Chain(nn.Module):
    """A first part, blocks, and a last part that gives the loss."""

    def __init__(self, first, blocks, last):
        super().__init__()
        self.first, self.blocks, self.last = first, nn.ModuleList(blocks), last

    def forward(self, x, replays):
        x = self.first(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if replays else block(x)
        return self.last(x)


class Part(nn.Module):
    """body(x, *modules)"""

    def __init__(self, body, *modules):
        super().__init__()
        self.body, self.modules_ = body, nn.ModuleList(modules)

    def forward(self, x):
        return self.body(x, *self.modules_)


def cifar(k, batch=16):
    """CIFAR ResNet of version 2, depth 6k + 2."""
    widths = [16] * k + [32] * k + [64] * k
    inputs = [16] + widths[:-1]
    blocks = [ResidualBlock(i, o, 1 if i == o else 2) for i, o in zip(inputs, widths)]
    labels = torch.zeros(batch, dtype=torch.int64)
    last = Part(lambda x, fc: F.cross_entropy(fc(F.relu(x).mean((2, 3))), labels), nn.Linear(64, 10))
    model = Chain(nn.Conv2d(3, 16, 3, 1, 1), blocks, last).to(memory_format=torch.channels_last)
    return model, torch.zeros(batch, 3, 32, 32).to(memory_format=torch.channels_last)


def step(model, x, replays):
    start = time.perf_counter()
    model(x, replays).backward()
    seconds = time.perf_counter() - start
    model.zero_grad(set_to_none=True)
    return seconds


def bert_tiny(batch=4, length=128, hidden=128, vocabulary=30522):
    tokens, places = nn.Embedding(vocabulary, hidden), nn.Embedding(512, hidden)
    first = Part(lambda ids, t, p: F.dropout(t(ids) + p.weight[:length], 0.1), tokens, places)
    chosen = (torch.arange(20) + length * torch.arange(batch).unsqueeze(1)).flatten()
    targets = torch.zeros(len(chosen), dtype=torch.int64)
    last = Part(lambda x, t: F.cross_entropy(F.linear(x.flatten(0, 1)[chosen], t.weight), targets), tokens)
    blocks = [Layer(hidden, 2, False, 0.1) for _ in range(2)]
    return Chain(first, blocks, last), torch.zeros(batch, length, dtype=torch.int64)


def peak(make, replays):
    def two_steps():
        model, x = make()
        for _ in range(2):
            step(model, x, replays)

    return most_allocated(two_steps)


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    models = {"cifar k=1": lambda: cifar(1), "cifar k=3": lambda: cifar(3), "cifar k=5": lambda: cifar(5),
              "bert tiny": bert_tiny}
    for name, make in models.items():
        model, x = make()
        step(model, x, False), step(model, x, True)
        plain, on_top = [], []
        for _ in range(rounds):
            plain.append(step(model, x, False))
            on_top.append(100 * (step(model, x, True) / plain[-1] - 1))
        print(f"{name}: {peak(make, False) / 1e6:.2f} and {peak(make, True) / 1e6:.2f} MB, "
              f"{statistics.median(plain):.4f} s, {statistics.median(on_top):+.1f} % "
              f"({min(on_top):+.1f} to {max(on_top):+.1f})", flush=True)


if __name__ == "__main__":
    main()
