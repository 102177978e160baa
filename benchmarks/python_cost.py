#!/usr/bin/env python3
"""What Python costs over C++: an op, a step of a language model, and the import.

    python3 python_cost.py BUILD MODEL.gguf [--rounds N] [--write FILE.md]

The interpreter must have the package rewind, and PyTorch for its column; BUILD has benchmarks/bench and
tests/interop/adapter_files. Times are those of the processor in user code, so other work on the machine counts little.
"""
import argparse
import importlib.util
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import rewind as rw

CHAIN, STEPS, RATE = 1000, (2, 8), "3e-3"


def recorded(xp, make, name):
    """Microseconds of an op of bench op_overhead, in a chain that is recorded."""
    times = []
    for _ in range(31):
        x, w = make(), make()
        op = {"relu(x)": lambda x: xp.relu(x), "x + w": lambda x: x + w, "x * w": lambda x: x * w,
              "matmul(x, w)": lambda x: xp.matmul(x, w)}[name]
        start = time.thread_time()
        for _ in range(CHAIN):
            x = op(x)
        times.append((time.thread_time() - start) / CHAIN * 1e6)
        del x
    return statistics.median(times)


def op_rows(build):
    text = subprocess.run([build / "benchmarks/bench", "op_overhead", "--chain", str(CHAIN), "--rounds", "31"], check=True, capture_output=True,
                          text=True).stdout
    in_cpp = {name: float(us) for name, us in re.findall(r"\| `(.*)` \| ([\d.]+) \|", text)}
    before = rw.default_device()
    rw.set_default_device("dry:cpu")
    ours = {name: recorded(rw, lambda: rw.zeros((64, 64)).requires_grad_(), name) for name in in_cpp}
    rw.set_default_device(before)
    theirs = dict.fromkeys(in_cpp, "")
    if importlib.util.find_spec("torch"):
        import torch
        torch.set_num_threads(1)
        theirs = {name: f"{recorded(torch, lambda: torch.zeros(1, 1, requires_grad=True), name):.2f}" for name in in_cpp}
    for name, us in in_cpp.items():
        yield f"| `{name}` | {us:.2f} | {ours[name]:.2f} | {ours[name] - us:.2f} | {theirs[name]} |"


def train(model_of, steps, rate):
    """Trains as adapter_files does."""
    model = rw.nn.Decoder.from_files(model_of, dtype="f32")
    rw.manual_seed(2)
    rw.lora.add(model, rank=8, alpha=16)
    optimizer = rw.optim.AdamW(model.parameters(), lr=rate, weight_decay=0)
    i = np.arange(2 * 33)
    for step in range(steps):
        ids = ((i * i + 7 * i + 13 * (step % 4)) % model.vocabulary).astype(np.int32).reshape(2, 33)
        loss = model.loss(ids[:, :-1], ids[:, 1:])
        loss.item()
        optimizer.backward(loss)
        optimizer.step()
        optimizer.zero_grad()


def user_seconds(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def steps_row(build, model, rounds):
    few, many = STEPS
    with tempfile.TemporaryDirectory() as folder:
        in_cpp = [build / "tests/interop/adapter_files", "train", model, "lora", folder]
        in_python = [sys.executable, __file__, "--train", model]
        found = {"C++": [], "Python": []}
        for _ in range(rounds):
            for name, command in (("C++", in_cpp), ("Python", in_python)):
                long, short = (user_seconds([*command, str(count), RATE]) for count in (many, few))
                found[name].append((long - short) / (many - few))
    cpp, python = (min(found[name]) for name in ("C++", "Python"))
    return f"| {cpp:.3f} | {python:.3f} | {100 * (python / cpp - 1):+.1f} % |"


def import_ms():
    program = "import time; t = time.process_time(); import rewind; print(time.process_time() - t)"
    return 1000 * min(float(subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout) for _ in range(5))


def main():
    if sys.argv[1:2] == ["--train"]:
        rw.set_default_device("cpu")
        return train(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=Path)
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", metavar="FILE.md")
    options = parser.parse_args()
    lines = ["# What Python costs over C++", "", f"Made by `python3 benchmarks/python_cost.py BUILD {Path(options.model).name} --write`, of the processor's time "
             f"in user code (Rewind {rw.__version__}, {rw.default_device().name}).", "", "A recorded op of a chain, on a dry device, in microseconds, and PyTorch's "
             "eager op on one element:", "", "| op | C++ | Python | more | PyTorch |", "|---|---:|---:|---:|---:|", *op_rows(options.build), "",
             f"A step of LoRA of rank 8 on {Path(options.model).name} in f32, 2 texts of 32 tokens, in seconds (the best of {options.rounds}):", "",
             "| C++ | Python | more |", "|---:|---:|---:|", steps_row(options.build, options.model, options.rounds), "", f"`import rewind` takes {import_ms():.0f} ms."]
    text = "\n".join(lines) + "\n"
    print(text)
    if options.write:
        Path(options.write).write_text(text)


if __name__ == "__main__":
    main()
