#!/usr/bin/env python3
"""What torch.utils.checkpoint saves and costs on the CPU: models of `./rewind memory --measured`.

f32, images channels_last, every block of the network in a checkpoint. The peak is the most bytes that PyTorch's
own allocator held at once in two steps, parameters, batch and optimizer included. Steps with and without
checkpoints are timed in turn. Prints a line per model: both peaks in MB (10^6 bytes), the plain step's seconds
(median), time on top in % (median, least, most).
Needs PyTorch (Debian: python3-torch). Usage: checkpoint_cost.py [--rounds N] [MODEL...]"""

import argparse
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from plain_step import Bert, Decoder, images, most_allocated, resnet50


class Checkpointed(nn.Module):
    """A block whose activations are made again while `on` is set."""

    on = False

    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x):
        return checkpoint(self.body, x, use_reentrant=False) if Checkpointed.on else self.body(x)


class ResidualBlock(nn.Module):
    """Pre-activated: [norm,] relu, conv, [norm,] relu, conv, and the input on top."""

    def __init__(self, inputs, outputs, stride, norm):
        super().__init__()
        self.norm1, self.norm2 = (nn.BatchNorm2d(c) if norm else nn.Identity() for c in (inputs, outputs))
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1)
        self.shortcut = None if inputs == outputs else nn.Conv2d(inputs, outputs, 1, stride)

    def forward(self, x):
        y = self.conv1(F.relu(self.norm1(x)))
        y = self.conv2(F.relu(self.norm2(y)))
        return y + (x if self.shortcut is None else self.shortcut(x))


def cifar(k, batch, norm):
    """CIFAR ResNet of version 2, depth 6k + 2; gradients only."""
    widths = [16] * k + [32] * k + [64] * k
    inputs = [16] + widths[:-1]
    blocks = [Checkpointed(ResidualBlock(i, o, 1 if i == o else 2, norm)) for i, o in zip(inputs, widths)]
    model = nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1), *blocks, nn.BatchNorm2d(64) if norm else nn.Identity(),
                          nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    model = model.to(memory_format=torch.channels_last)
    x, labels = images(batch, 32, 32), torch.zeros(batch, dtype=torch.int64)
    return model, None, lambda: F.cross_entropy(model(x), labels)


def imagenet(batch):
    model = resnet50().to(memory_format=torch.channels_last)
    for i in range(4, len(model) - 3):
        model[i] = Checkpointed(model[i])
    x, labels = images(batch, 224, 224), torch.zeros(batch, dtype=torch.int64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return model, optimizer, lambda: F.cross_entropy(model(x), labels)


def bert(hidden, layers, batch, length=128):
    model = Bert(hidden=hidden, layers=layers, heads=hidden // 64)
    model.layers = nn.ModuleList(Checkpointed(layer) for layer in model.layers)
    ids = torch.zeros(batch, length, dtype=torch.int64)
    chosen = (torch.arange(20) + length * torch.arange(batch).unsqueeze(1)).flatten()
    targets, following = torch.zeros(len(chosen), dtype=torch.int64), torch.zeros(batch, dtype=torch.int64)

    def loss():
        logits, pairs = model(ids, ids, chosen)
        return F.cross_entropy(logits, targets) + F.cross_entropy(pairs, following)

    return model, torch.optim.AdamW(model.parameters()), loss


def decoder(vocabulary, hidden, heads, batch, length):
    model = Decoder(vocabulary, hidden, 12, length, heads)
    model.layers = nn.ModuleList(Checkpointed(layer) for layer in model.layers)
    ids = torch.zeros(batch, length, dtype=torch.int64)
    return model, torch.optim.AdamW(model.parameters()), lambda: F.cross_entropy(
        model(ids).flatten(0, 1), ids.flatten())


def step(model, optimizer, loss):
    start = time.perf_counter()
    loss().backward()
    if optimizer:
        optimizer.step()
    model.zero_grad(set_to_none=True)
    return time.perf_counter() - start


def peak(make, on):
    def two_steps():
        parts = make()
        step(*parts), step(*parts)

    Checkpointed.on = on
    return most_allocated(two_steps)


MODELS = {
    "resnet-20 x 64": lambda: cifar(3, 64, True),
    "resnet-56 x 64": lambda: cifar(9, 64, True),
    "bert-mini 16 x 128": lambda: bert(256, 4, 16),
    "decoder 256 4 x 256": lambda: decoder(8000, 256, 4, 4, 256),
    **{f"cifar k={k} x 1280": lambda k=k: cifar(k, 1280, False) for k in (1, 5, 10, 15, 19)},
    "depth 122 x 128": lambda: cifar(20, 128, False),
    "resnet-50 x 184": lambda: imagenet(184),
    "decoder 768 1 x 4096": lambda: decoder(50257, 768, 12, 1, 4096),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"some of {', '.join(MODELS)}")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    for name in args.models or MODELS:
        peaks = [peak(MODELS[name], on) / 1e6 for on in (False, True)]
        parts = MODELS[name]()
        plain, on_top = [], []
        for round in range(args.rounds + 1):
            seconds = []
            for Checkpointed.on in (False, True):
                seconds.append(step(*parts))
            if round == 0:  # the first steps make memory and plans
                continue
            plain.append(seconds[0])
            on_top.append(100 * (seconds[1] / seconds[0] - 1))
        print(f"{name}: {peaks[0]:.2f} and {peaks[1]:.2f} MB, {statistics.median(plain):.4f} s, "
              f"{statistics.median(on_top):+.1f} % ({min(on_top):+.1f} to {max(on_top):+.1f})", flush=True)


if __name__ == "__main__":
    main()
