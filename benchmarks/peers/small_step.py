#!/usr/bin/env python3
"""Measures milliseconds of a step of one sample in PyTorch on the CPU, the rows of `bench small_step`.
Needs PyTorch (Debian: python3-torch). Usage: small_step.py [THREADS]"""

import sys
import time

import torch
import torch.nn.functional as F
from torch import nn


def step_of(micro_batches):
    model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Dropout(0.2), nn.Linear(512, 512), nn.ReLU(),
                          nn.Dropout(0.2), nn.Linear(512, 10))
    optimizer = torch.optim.Adam(model.parameters())
    x, y, count = torch.full((1, 784), 0.5), torch.tensor([3]), 0

    def step():
        nonlocal count
        (F.cross_entropy(model(x), y) / micro_batches).backward()
        count += 1
        if count % micro_batches == 0:
            optimizer.step()
            optimizer.zero_grad()

    return step


def main():
    if len(sys.argv) > 1:
        torch.set_num_threads(int(sys.argv[1]))
    print("| step | ms |\n|---|---:|")
    for micro_batches in (1, 100):
        step, best = step_of(micro_batches), float("inf")
        for _ in range(6):
            start = time.perf_counter()
            for _ in range(200):
                step()
            best = min(best, (time.perf_counter() - start) / 200)
        print(f"| {micro_batches} | {best * 1e3:.2f} |")


if __name__ == "__main__":
    main()
