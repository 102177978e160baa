#!/usr/bin/env python3
"""Measures a step of training adapters of all linear layers of SmolLM2-135M's shape, in f32 on the processor, beside PyTorch
with PEFT, in turns, and writes a table: seconds of a step, and the most memory of the process over that before the model.
Without torch, transformers and peft only ours is measured.
Usage: lora.py [--python 'python3'] [--rounds 3] [--output FILE]"""

import argparse
import os
import shlex
import statistics
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FORMS = {"LoRA, rank 8": ["--rank", "8"], "DoRA, rank 8": ["--rank", "8", "--dora"]}


def measured(command, o):
    """Returns seconds and MiB; nothing where a package is missing."""
    result = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=dict(os.environ, OMP_NUM_THREADS=str(o.threads)))
    if "ModuleNotFoundError" in result.stderr:
        return None
    if result.returncode:
        raise SystemExit(f"{command}: {result.stderr}")
    *seconds, memory = map(float, result.stdout.splitlines()[-1].split())
    return statistics.median(seconds), memory


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--python", type=shlex.split, default=["python3"], help="the command that runs PyTorch")
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS))
    parser.add_argument("--seq", type=int, default=512, help="the tokens of the text")
    parser.add_argument("--steps", type=int, default=4, help="that a run measures")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path)
    o = parser.parse_args()
    lines = ["| adapters | s a step | PEFT | ratio | MiB over idle | PEFT | ratio |", "|---|---:|---:|---:|---:|---:|---:|"]
    for form in o.forms:
        options = [*FORMS[form], "--seq", o.seq, "--steps", o.steps]
        rounds = [(measured([o.build / "benchmarks/bench", "lora_step", *options], o),
                   measured([*o.python, ROOT / "benchmarks/peers/lora_step.py", *options], o)) for _ in range(o.rounds)]
        cells = [form]
        for i, digits in enumerate((2, 0)):
            ours = statistics.median(r[0][i] for r in rounds)
            cells.append(f"{ours:.{digits}f}")
            if rounds[0][1] is None:
                cells += ["", ""]
                continue
            theirs = statistics.median(r[1][i] for r in rounds)
            cells += [f"{theirs:.{digits}f}", f"{ours / theirs:.2f}"]
        lines.append("| " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)
    if o.output:
        cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "")
        o.output.write_text(f"""# Training adapters beside PEFT

- command: `benchmarks/lora.py`, medians of {o.rounds} rounds in turns, {o.steps} steps each after a first one, {o.threads} threads
- machine: {cpu}
- adapters of all linear layers of a model of SmolLM2-135M's shape, 1 x {o.seq} tokens, f32, AdamW, nothing recomputed;
  memory is the most of the process over what it held before the model was made

""" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
