#!/usr/bin/env python3
"""f16 against f32 in ./rewind asr, at equal data: memory, word error rate over seeds, CPU time, and the largest
batch that fits a budget. Markdown on standard output. Usage: asr.py FOLDER_OF_THE_PROGRAMS [SEEDS] [ASR_OPTIONS...]"""

import json
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ASR = Path(sys.argv[1]).resolve() / "asr"
SEEDS = range(1, int(sys.argv[2] if len(sys.argv) > 2 else 3) + 1)
OPTIONS = sys.argv[3:]
BUDGET = "64MiB"


def run(folder, *options):
    """(what it printed, its report, seconds, CPU seconds)"""
    def cpu():
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime
    start, before = time.time(), cpu()
    out = subprocess.run([ASR, *OPTIONS, *options, "--report", folder / "report.json"], check=True, text=True,
                         capture_output=True).stdout
    return out, json.loads((folder / "report.json").read_text()), time.time() - start, cpu() - before


def mib(size):
    return f"{size / 2**20:.2f} MiB"


def train(folder):
    """The same training in both dtypes."""
    print("| dtype | word error rate by seed | mean (spread) | peak | activations at it | seconds | CPU seconds |")
    print("|---|---|---|---|---|---|---|")
    activations = {}
    for dtype in ("f32", "f16"):
        runs = [run(folder, "--dtype", dtype, "--seed", str(seed), "--save", str(folder / "net"), "--quiet")[1:]
                for seed in SEEDS]
        rates = [100 * report["word_error_rate"] for report, _, _ in runs]
        memory = runs[0][0]["device"]["memory"]
        activations[dtype] = memory["activations"]
        print(f"| {dtype} | {', '.join(f'{rate:.2f} %' for rate in rates)} | {statistics.mean(rates):.2f} % "
              f"({min(rates):.2f} to {max(rates):.2f}) | {mib(memory['peak'])} | {mib(memory['activations'])} | "
              f"{statistics.mean(r[1] for r in runs):.0f} | {statistics.mean(r[2] for r in runs):.0f} |", flush=True)
    print(f"\nActivations of f16 over those of f32: {activations['f16'] / activations['f32']:.3f}.")


def plan(folder):
    """Larger models and batches, by dry runs."""
    print("\n| model, sounds of 4 s | activations f32 | f16 | ratio |\n|---|---|---|---|")
    for title, options in (("default, batch 32", ("--batch", "32")),
                           ("3 LSTMs of 512, 256 channels, batch 32",
                            ("--batch", "32", "--layers", "3", "--hidden", "512", "--channels", "256")),
                           ("transducer, 3 LSTMs of 512, 256 channels, batch 32",
                            ("--loss", "rnnt", "--batch", "32", "--layers", "3", "--hidden", "512", "--channels", "256"))):
        sizes = [run(folder, "--plan", *options, "--dtype", dtype)[1]["memory"]["activations"] for dtype in ("f32", "f16")]
        print(f"| {title} | {mib(sizes[0])} | {mib(sizes[1])} | {sizes[1] / sizes[0]:.3f} |", flush=True)
    out = run(folder, "--plan", "--fit", BUDGET)[0]
    table = re.search(r"Largest batches(.*?)\n\n", out, re.S)[0].strip()
    print(f"\n```\n{table}\n```")


with tempfile.TemporaryDirectory() as path:
    train(Path(path))
    plan(Path(path))
