#!/usr/bin/env python3
"""Rewind beside PyTorch in the five workloads of Inference Arena, of one definition and the same weights: outputs and gradients
of both are compared, then forward with the loss, without and with backward, is timed in turns.

    python3 inferena.py [--device cpu] [--torch-device cpu] [--threads 2] [--rounds 5] [--seconds 2] [--only PATTERN] [--write FILE.md]

Needs the package rewind and PyTorch.
"""
import argparse
import fnmatch
import statistics
import time
from pathlib import Path

import numpy as np
from kits import PyTorch, Rewind
from workloads import WORKLOADS

BOUND = 5e-3  # the norm of a difference over that of the value: where sums differ in the last bit, ReLU takes other sides


def weights_of(model):
    """Random weights by the names and shapes of PyTorch's model, of which signals keep their size."""
    state, generator = {}, np.random.default_rng(7)
    for name, value in model.state_dict().items():
        shape = tuple(value.shape)
        if value.dim() < 2:
            state[name] = np.full(shape, float(name.endswith(("weight", "var"))), np.float32)
        else:
            state[name] = (generator.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
    return state


class Side:
    """A workload of one kit."""

    def __init__(self, kit, make, run):
        self.kit, self.model = kit, make(kit)
        self.step = run(kit, self.model)

    def forward(self):
        with self.kit.no_grad():
            self.step()

    def training(self):
        self.model.zero_grad()
        self.step()[1].backward()

    def result(self):
        self.model.zero_grad()
        output, loss = self.step()
        output = self.kit.numpy(output).copy()
        loss.backward()
        return {"the output": output, "the loss": np.array(loss.item())} | self.kit.gradients(self.model)

    def seconds(self, what, budget):
        """The time of one run, of as many as take about `budget` seconds."""
        count, start = 0, time.perf_counter()
        while (spent := time.perf_counter() - start) < budget:
            what(self)
            self.kit.wait()
            count += 1
        return spent / count


def difference(ours, theirs):
    """The largest relative difference, and of what."""
    def relative(name):
        return np.linalg.norm(ours[name] - theirs[name]) / max(np.linalg.norm(theirs[name]), 1e-12)
    return max((relative(name), name) for name in theirs)


def row(name, o):
    make, run = WORKLOADS[name]
    sides = [Side(kit, make, run) for kit in (PyTorch(o.torch_device, o.threads), Rewind(o.device))]
    state = weights_of(sides[0].model)
    for side in sides:
        side.kit.load(side.model, state)
    theirs, ours = (side.result() for side in sides)
    worst, what = difference(ours, theirs)
    if not worst <= BOUND:
        raise SystemExit(f"{name}: {what} differs by {worst:.2g} of its norm, and {BOUND} is allowed")
    cells = []
    for run in (Side.forward, Side.training):
        times = [[side.seconds(run, o.seconds) for side in sides] for _ in range(o.rounds + 1)][1:]
        ratios = [theirs / ours for theirs, ours in times]
        cells += [f"{1000 * statistics.median(t[i] for t in times):.1f}" for i in (0, 1)]
        cells.append(f"**{statistics.median(ratios):.2f}** ({min(ratios):.2f}-{max(ratios):.2f})")
    return f"| {name} | {' | '.join(cells)} | {worst:.0e} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", help="Rewind's")
    parser.add_argument("--torch-device", default="cpu")
    parser.add_argument("--threads", type=int, default=2, help="PyTorch's; Rewind takes OMP_NUM_THREADS")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2, help="of a measurement")
    parser.add_argument("--only", default="*", help="a pattern of workloads")
    parser.add_argument("--write", metavar="FILE.md")
    o = parser.parse_args()
    lines = ["| workload | forward: PyTorch, ms | Rewind | ratio | with backward: PyTorch, ms | Rewind | ratio | differ |",
             "|---|---:|---:|---:|---:|---:|---:|---:|"]
    for name in fnmatch.filter(WORKLOADS, o.only):
        lines.append(row(name, o))
        print(lines[-1], flush=True)
    if o.write:
        Path(o.write).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
