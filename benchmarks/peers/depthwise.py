#!/usr/bin/env python3
"""Measures milliseconds of depthwise convolutions in PyTorch on the CPU, the rows of `bench depthwise`,
in channels_last. Needs PyTorch (Debian: python3-torch). Usage: depthwise.py [BATCH [ROUNDS]]"""

import sys
import time

import torch
import torch.nn.functional as F

ROWS = [(112, 32, 3, 1), (112, 96, 3, 2), (56, 144, 3, 1), (28, 192, 3, 1), (14, 576, 3, 1), (14, 576, 3, 2),
        (7, 960, 3, 1), (28, 240, 5, 1), (14, 672, 5, 1)]


def fastest(rounds, body):
    best = float("inf")
    for _ in range(rounds + 1):
        start = time.perf_counter()
        body()
        best = min(best, time.perf_counter() - start)
    return best * 1e3


def main():
    batch, rounds = (int(v) for v in (sys.argv[1:] + ["8", "9"][len(sys.argv) - 1:]))
    for size, channels, kernel, stride in ROWS:
        x = torch.randn(batch, channels, size, size).to(memory_format=torch.channels_last)
        w = torch.randn(channels, 1, kernel, kernel)

        def run():
            return F.conv2d(x, w, None, stride, kernel // 2, 1, channels)

        with torch.no_grad():
            forward = fastest(rounds, run)
        times = []
        for of in (x, w):
            of.requires_grad_(True)
            y = run()
            seed = torch.randn_like(y)
            times.append(fastest(rounds, lambda: torch.autograd.grad(y, of, seed, retain_graph=True)))
            of.requires_grad_(False)
        print(f"{batch}x{size}x{size}x{channels} {kernel}x{kernel}/{stride}: "
              f"{forward:.2f} {times[0]:.2f} {times[1]:.2f}", flush=True)


main()
