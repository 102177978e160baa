#!/usr/bin/env python3
"""Memory of fine-tuning by adapters on quantised weights, by dry runs, and beside it in real steps of the first models.

    benchmarks/adapters.py > benchmarks/results/adapters.md          uses the programs of build/
"""
import datetime
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODELS = ("qwen3-0.6b", "llama-3.2-1b", "qwen3-1.7b", "llama-3.2-3b", "llama-3.1-8b", "qwen3-14b", "qwen3-32b")
SHORT = ["--batch", "1", "--seq", "512"]
WAYS = {"all on the device, 1 x 512": [*SHORT, "--checkpoint", "block"],
        "weights in host memory, 1 x 512": [*SHORT, "--checkpoint", "block", "--offload", "parameters", "--host-boundaries"],
        "all on the device, 2 x 2048": ["--batch", "2", "--seq", "2048", "--checkpoint", "block", "--mlp-rows", "1024"]}

ONE_LAYER = ["--model", "llama-3.1-8b", "--layers", "1"]
REAL = {"qwen3-0.6b, 1 x 512, cpu": ["--model", "qwen3-0.6b"],
        "llama-3.2-1b, 1 x 512, cpu": ["--model", "llama-3.2-1b"],
        "llama-3.1-8b with one layer, 1 x 512, cpu": ONE_LAYER,
        "llama-3.1-8b with one layer, 1 x 64, vulkan, f16": [*ONE_LAYER, "--seq", "64", "--device", "vulkan", "--dtype", "f16"]}


def plan(model, *options):
    """Returns what `plan` prints."""
    command = [ROOT / "build/apps/lora", "--plan", "--config", model, "--type", "q4_k", "--device", "dry:rx7900xtx.json",
               *options]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout + done.stderr


def peaks(text):
    """Returns the peaks on the device and on the host."""
    device = re.search(r"^Device memory: peak ([\d.]+ \w+)", text, re.M)
    host = re.search(r"beside it, host memory: peak ([\d.]+ \w+)", text)
    return [device[1] if device else "does not fit", host[1] if host else "0 B"]


def longest(text):
    found = re.search(r"^Up to --seq (\d+) fits, with (.*)\.$", text, re.M)
    return f"{int(found[1]):,}" if found else ""


def real(options):
    """Returns the peaks in bytes of real steps and of their forecast."""
    command = [ROOT / "build/benchmarks/bench", "lora_step", "--type", "q4_k", "--steps", "1", "--checkpoint-every", "1", *options]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-2:]


def main():
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    print("# Adapters on quantised weights: memory\n\n"
          "Peaks by dry runs of `./rewind lora` ([how](../../docs/adapters.md)): rank 16 on all linear layers, adapters and\n"
          "AdamW's moments in f32, weights in Q4_K (the head in Q6_K), activations in f16, one segment per layer (and\n"
          "`--mlp-rows 1024` where there are 4096 tokens), update included. The last column: the longest text, up to the\n"
          "model's positions, with which `--memory 8GiB --host-memory 64GiB` fits, by the leanest way.\n\n"
          f"`benchmarks/adapters.py` at {commit.stdout.strip()}, {datetime.date.today()}.\n")
    heads = [cell for way in WAYS for cell in (way, "on the host")]
    print("| | " + " | ".join(heads) + " | longest in 8 GiB |\n|---|" + "---:|" * (len(heads) + 1))
    for model in MODELS:
        cells = [cell for options in WAYS.values() for cell in peaks(plan(model, *options))]
        print("| " + " | ".join([model, *cells, longest(plan(model, *SHORT, "--memory", "8GiB", "--host-memory",
                                                             "64GiB"))]) + " |", flush=True)
    print("\n## Real steps\n\nTwo steps with adapters of rank 8, blocks of any values, one segment per layer; on `cpu` in f32.\n\n"
          "| | peak, bytes | forecast |\n|---|---:|---:|")
    for name, options in REAL.items():
        print("| " + " | ".join([name, *(f"{int(n):,}" for n in real(options))]) + " |", flush=True)


if __name__ == "__main__":
    main()
