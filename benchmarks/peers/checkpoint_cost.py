#!/usr/bin/env python3
"""Measures what torch.utils.checkpoint saves and costs, on the models of `./rewind memory --measured`.

f32 (no TF32), images channels_last, every block of the network in a checkpoint; or, with --activation-budget, the
compiled model whose partitioner may keep that share of what it would keep without a budget. The peak is the most
bytes that PyTorch's own allocator held at once in two steps, parameters, batch and optimizer included. Steps with
and without are timed in turn. Prints a line per model: both peaks in MB (10^6 bytes), the plain step's seconds
(median), time on top in % (median, least, most).
Needs PyTorch (Debian: python3-torch).
Usage: checkpoint_cost.py [--device cuda] [--rounds N] [--activation-budget SHARE] [MODEL...]"""

import argparse
import gc
import statistics
import time

import torch
import torch._functorch.config as functorch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from plain_step import Bert, Decoder, images, most_allocated, resnet50


class Checkpointed(nn.Module):
    """A block whose activations are recomputed while `on` is set."""

    on = False

    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x):
        return checkpoint(self.body, x, use_reentrant=False) if Checkpointed.on else self.body(x)


class ResidualBlock(nn.Module):
    """A pre-activated block: [norm,] relu, conv, [norm,] relu, conv, plus the input."""

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
    """Returns a CIFAR ResNet of version 2, depth 6k + 2; only gradients are computed."""
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


def synchronize():
    if torch.get_default_device().type == "cuda":
        torch.cuda.synchronize()


def step(model, optimizer, loss):
    synchronize()
    start = time.perf_counter()
    loss().backward()
    if optimizer:
        optimizer.step()
    model.zero_grad(set_to_none=True)
    synchronize()
    return time.perf_counter() - start


class Way:
    """A way to run a model: plainly or with less memory."""

    def __init__(self, make, less, share):
        self.less, self.share = less, share
        self.model, self.optimizer, self.loss = make()
        if share:
            torch._dynamo.reset()
            self.loss = torch.compile(self.loss)

    def step(self):
        Checkpointed.on = self.less and not self.share
        functorch.activation_memory_budget = self.share if self.less and self.share else 1.0
        return step(self.model, self.optimizer, self.loss)


def peak(make, less, share):
    def two_steps():
        way = Way(make, less, share)
        way.step(), way.step()

    gc.collect()
    if torch.get_default_device().type != "cuda":
        return most_allocated(two_steps)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    two_steps()
    return torch.cuda.max_memory_allocated() - before


MODELS = {
    "resnet-20 x 64": lambda: cifar(3, 64, True),
    "resnet-56 x 64": lambda: cifar(9, 64, True),
    "bert-mini 16 x 128": lambda: bert(256, 4, 16),
    "decoder 256 4 x 256": lambda: decoder(8000, 256, 4, 4, 256),
    **{f"cifar k={k} x 1280": lambda k=k: cifar(k, 1280, False) for k in (1, 5, 10, 15, 19)},
    "depth 122 x 128": lambda: cifar(20, 128, False),
    "resnet-50 x 184": lambda: imagenet(184),
    "bert-base 64 x 128": lambda: bert(768, 12, 64),
    "bert-large 32 x 128": lambda: bert(1024, 24, 32),
    "decoder 768 1 x 4096": lambda: decoder(50257, 768, 12, 1, 4096),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"some of {', '.join(MODELS)}")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--activation-budget", type=float, metavar="SHARE")
    args = parser.parse_args()
    torch.set_default_device(args.device)
    torch.backends.cudnn.allow_tf32 = False
    for name in args.models or MODELS:
        peaks = [peak(MODELS[name], less, args.activation_budget) / 1e6 for less in (False, True)]
        gc.collect()
        ways = [Way(MODELS[name], less, args.activation_budget) for less in (False, True)]
        plain, on_top = [], []
        for round in range(args.rounds + 1):
            seconds = [way.step() for way in ways]
            if round == 0:  # the first steps make memory and plans
                continue
            plain.append(seconds[0])
            on_top.append(100 * (seconds[1] / seconds[0] - 1))
        del ways
        gc.collect()
        print(f"{name}: {peaks[0]:.2f} and {peaks[1]:.2f} MB, {statistics.median(plain):.4f} s, "
              f"{statistics.median(on_top):+.1f} % ({min(on_top):+.1f} to {max(on_top):+.1f})", flush=True)


if __name__ == "__main__":
    main()
