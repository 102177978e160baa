#!/usr/bin/env python3
"""What `--memory` chooses for well-known models on three machines, by dry runs.

    benchmarks/one_number.py > benchmarks/results/one-number.md      uses the programs of build/
"""
import datetime
import re
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MACHINES = {
    "8 GiB GPU (RX 7900 XTX, limited), 64 GiB": ["--device", "dry:rx7900xtx.json", "--memory", "8GiB",
                                                 "--host-memory", "64GiB"],
    "24 GB GPU (RX 7900 XTX), 128 GiB": ["--device", "dry:rx7900xtx.json", "--memory", "23GiB",
                                         "--host-memory", "128GiB"],
    "laptop without a GPU, 16 GB": ["--device", "dry:cpu", "--memory", "13GiB"]}
LANGUAGE = ("smollm2-135m", "smollm2-360m", "qwen3-0.6b", "llama-3.2-1b", "qwen3-1.7b", "llama-3.2-3b", "llama-3.1-8b")
MODELS = {f"{name}, 8 x 2048": ["lm", "--config", name, "--seq", "2048", "--batch", "8"] for name in LANGUAGE} | {
    "BERT-large, 32 x 512": ["bert", "--model", "large", "--vocab-size", "30522", "--seq", "512", "--batch", "32",
                             "--accumulate", "1"],
    "ResNet-50, 128 x 224": ["resnet", "--model", "resnet50", "--image", "224", "--classes", "1000", "--batch", "128"]}


def chosen(model, machine):
    """Returns the cells of a row: what was asked for, and what was chosen."""
    program, *options = model
    start = time.monotonic()
    done = subprocess.run([ROOT / "build/apps" / program, "--plan", *options, *machine] if program != "lm" else
                          [ROOT / "build/apps/lm", "train", "--plan", *options, *machine],
                          capture_output=True, text=True)
    seconds = time.monotonic() - start
    text = done.stdout + done.stderr
    rows = re.findall(r"^  (.+?) {2,}([\d.]+ \w+) +([\d.]+ \w+) +([\d.e+]+) s$", text, re.M)
    if done.returncode or not rows:
        return ["", "", "does not fit: " + re.sub(r".*The least is ", "the least is ", text.strip().splitlines()[-1]), "",
                "", f"{seconds:.1f} s"]
    by_hand = re.search(r"^By hand: (.*)$", text, re.M)
    asked, last = rows[0], rows[-1]
    return [asked[1], f"{asked[3]} s", f"`{by_hand[1]}`" if by_hand else "nothing changes", last[1],
            f"{float(last[3]) / float(asked[3]):.2f}", f"{seconds:.1f} s"]


def main():
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    print("# One number for memory\n\n"
          "What `--memory` chooses ([how](../../docs/planning.md#one-number)), by dry runs: peak and modelled time of an\n"
          "update as it was asked for, the options that are chosen, and their peak and time against that. The speed of\n"
          "these devices is assumed (10 TFLOP/s, 500 GB/s, 25 GB/s over the bus), so times are ratios. AdamW with f32\n"
          "masters, activations in f16, the same update everywhere. The last column is the whole command.\n\n"
          f"`benchmarks/one_number.py` at {commit.stdout.strip()}, {datetime.date.today()}, on two cores of an Intel Xeon.")
    for name, machine in MACHINES.items():
        print(f"\n## {name}\n\n| | as asked | | chosen | peak | time | planned in |\n|---|---:|---:|---|---:|---:|---:|")
        for title, model in MODELS.items():
            print("| " + " | ".join([title, *chosen(model, machine)]) + " |", flush=True)


if __name__ == "__main__":
    main()
