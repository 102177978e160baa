#!/usr/bin/env python3
"""Writes grad_scaler.inc: the scales of PyTorch's GradScaler over hundreds of updates, some of which overflow.

Needs PyTorch (Debian: python3-torch). Which updates overflow comes from an integer formula that
tests/optim/test_loss_scale.cpp repeats.
Usage: make_grad_scaler_goldens.py > grad_scaler.inc"""

import torch

UPDATES = 400
# initial, growth, backoff, interval, seed, overflows among 256 updates
CASES = [
    (65536.0, 2.0, 0.5, 20, 1, 8),
    (65536.0, 2.0, 0.5, 7, 2, 40),
    (1024.0, 1.5, 0.25, 5, 3, 30),
    (2.0**20, 4.0, 0.125, 3, 4, 30),
    (2.0**120, 2.0, 0.5, 4, 5, 1),
]


def overflows(seed, often):
    state = seed
    for _ in range(UPDATES):
        state = (state * 1664525 + 1013904223) % 2**32
        yield (state >> 24) < often


def scales(initial, growth, backoff, interval, seed, often):
    w = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=initial, growth_factor=growth, backoff_factor=backoff,
                                  growth_interval=interval)
    for bad in overflows(seed, often):
        optimizer.zero_grad()
        scaler.scale((w * (float("inf") if bad else 0.0)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        yield scaler.get_scale()


print("// Made by make_grad_scaler_goldens.py; do not edit.")
print("// clang-format off")
for case in CASES:
    values = ", ".join("%.9g" % s for s in scales(*case))
    print("{%.9g, %g, %g, %d, %d, %d, {%s}}," % (*case, values))
