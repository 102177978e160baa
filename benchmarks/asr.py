#!/usr/bin/env python3
"""Compares f16 with f32 in ./rewind asr on the same data: memory, word error rate over seeds, CPU time, and the largest
batch that fits a budget. Prints Markdown.
Usage: asr.py FOLDER_OF_THE_PROGRAMS [SEEDS] [ASR_OPTIONS...]; with SEEDS 0 it measures memory only"""

import json
import re
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ASR = Path(sys.argv[1]).resolve() / "asr"
SEEDS = range(1, int(sys.argv[2] if len(sys.argv) > 2 else 3) + 1)
OPTIONS = sys.argv[3:]
BUDGET = "64MiB"


def run(folder, *options):
    """Returns (output, report, CPU seconds); it counts CPU seconds since others may use the machine, too."""
    def cpu():
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime
    before = cpu()
    out = subprocess.run([ASR, *OPTIONS, *options, "--report", folder / "report.json"], check=True, text=True,
                         capture_output=True).stdout
    return out, json.loads((folder / "report.json").read_text()), cpu() - before


def mib(size):
    return f"{size / 2**20:.2f} MiB"


def train(folder):
    """Runs the same training in both dtypes."""
    print("| dtype | word error rate by seed | mean (spread) | peak | CPU seconds |\n|---|---|---|---|---|")
    for dtype in ("f32", "f16"):
        runs = [run(folder, "--dtype", dtype, "--seed", str(seed), "--save", str(folder / "net"), "--quiet")[1:]
                for seed in SEEDS]
        rates = [100 * report["word_error_rate"] for report, _ in runs]
        print(f"| {dtype} | {', '.join(f'{rate:.2f} %' for rate in rates)} | {statistics.mean(rates):.2f} % "
              f"({min(rates):.2f} to {max(rates):.2f}) | {mib(runs[0][0]['device']['memory']['peak'])} | "
              f"{statistics.mean(r[1] for r in runs):.0f} |", flush=True)


def plan(folder):
    """Finds the activations at the peak, by dry runs, which are exact, and the largest batches."""
    print("\n| model, sounds of 4 s | activations f32 | f16 | ratio |\n|---|---|---|---|")
    large = ("--batch", "32", "--layers", "3", "--hidden", "512", "--channels", "256")
    for title, options in (("default, batch 8", ()), ("default, batch 32", ("--batch", "32")),
                           ("3 LSTMs of 512, 256 channels, batch 32", large),
                           ("transducer, batch 32", ("--loss", "rnnt", "--batch", "32")),
                           ("transducer, 3 LSTMs of 512, 256 channels, batch 32", ("--loss", "rnnt", *large))):
        sizes = [run(folder, "--plan", *options, "--dtype", dtype)[1]["memory"]["activations"] for dtype in ("f32", "f16")]
        print(f"| {title} | {mib(sizes[0])} | {mib(sizes[1])} | {sizes[1] / sizes[0]:.3f} |", flush=True)
    out = run(folder, "--plan", "--fit", BUDGET)[0]
    table = re.search(r"Largest batches(.*?)\n\n", out, re.S)[0].strip()
    print(f"\n```\n{table}\n```")


with tempfile.TemporaryDirectory() as path:
    if SEEDS:
        train(Path(path))
    plan(Path(path))
