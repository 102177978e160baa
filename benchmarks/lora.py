#!/usr/bin/env python3
"""Measures a step of training adapters of all linear layers, in f32 on the processor, beside PyTorch with PEFT, in turns, and
writes a table: seconds of a step by the clock and of CPU time, and the most memory of the process over that before the
model. Of the shapes of SmolLM2-135M and TinyLlama-1.1B, one text and four. With --losses N, both take N steps from the same
random weights and adapters in place of that, each on other bytes of a text, and the largest difference of their losses is
printed, beside that of PyTorch from itself without vectors of the processor. Without torch, transformers and peft only ours is
measured.
Usage: lora.py [--python 'python3'] [--rounds 3] [--models MODEL...] [--forms FORM...] [--losses N] [--output FILE]"""

import argparse
import json
import os
import shlex
import statistics
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TINYLLAMA = dict(model_type="llama", architectures=["LlamaForCausalLM"], vocab_size=32000, hidden_size=2048,
                 intermediate_size=5632, num_hidden_layers=22, num_attention_heads=32, num_key_value_heads=4,
                 max_position_embeddings=2048, rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=False)
MODELS = {"smollm2-135m": None, "tinyllama-1.1b": TINYLLAMA}
# The words of ours, and of theirs.
FORMS = {"lora": ([], []), "dora": (["--dora"], ["--dora"]),
         "lora-budget": (["--budget", "780MiB"], []),
         "lora-segments": (["--checkpoint-every", "1"], ["--gradient-checkpointing"]),
         "lora-segments-file": (["--checkpoint-every", "1", "--weights-in-file"], ["--gradient-checkpointing"])}


def measured(command, threads, **variables):
    """Returns seconds, CPU seconds and MiB; nothing where a package is missing."""
    result = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=dict(os.environ, OMP_NUM_THREADS=str(threads), **variables))
    if "ModuleNotFoundError" in result.stderr:
        return None
    if result.returncode:
        raise SystemExit(f"{command}: {result.stderr}")
    *seconds, cpu, memory = map(float, result.stdout.splitlines()[-1].split())
    return statistics.median(seconds), cpu, memory


def shape(model, folder):
    """Returns the words that name a new model's shape, of which it writes a file there."""
    if not MODELS[model]:
        return []
    Path(folder, "config.json").write_text(json.dumps(MODELS[model]))
    return ["--model", f"{folder}/config.json"]


def make(o, model, folder, words=()):
    """Writes random weights and adapters of the peer's there, and returns the command of the peer."""
    peer = [*o.python, ROOT / "benchmarks/peers/lora_step.py", *words]
    command = [*peer, "--make", folder, *shape(model, folder)]
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return peer


def row(o, model, form, batch):
    options = ["--batch", batch, "--seq", o.seq, "--steps", o.steps]
    with tempfile.TemporaryDirectory(dir=o.folder) as folder:
        ours, theirs = FORMS[form]
        if "--weights-in-file" in ours:
            make(o, model, folder)
            options += ["--model", f"{folder}/model"]
        else:
            options += shape(model, folder)
        commands = ([o.build / "benchmarks/bench", "lora_step", *options, *ours],
                    [*o.python, ROOT / "benchmarks/peers/lora_step.py", *options, *theirs])
        rounds = [[measured(command, o.threads) for command in commands] for _ in range(o.rounds)]
    cells = [model, form, str(batch)]
    for i, digits in enumerate((2, 2, 0)):
        mine = statistics.median(r[0][i] for r in rounds)
        cells.append(f"{mine:.{digits}f}")
        if rounds[0][1] is None:
            cells += ["", ""]
            continue
        others = statistics.median(r[1][i] for r in rounds)
        cells += [f"{others:.{digits}f}", f"{mine / others:.2f}"]
    return "| " + " | ".join(cells) + " |"


def losses(o, model, form, batch):
    """Returns a line about the losses from the same weights and adapters."""
    with tempfile.TemporaryDirectory(dir=o.folder) as folder:
        ours, theirs = FORMS[form]
        peer = make(o, model, folder, theirs)
        options = ["--batch", batch, "--seq", o.seq, "--steps", o.losses - 1, "--model", f"{folder}/model", "--adapter",
                   f"{folder}/adapter", "--data", ROOT / "docs/design.md", "--save-losses"]
        curves = []
        # PyTorch rounds elsewhere without the processor's vectors.
        for program, variables in (([o.build / "benchmarks/bench", "lora_step", *ours], {}), (peer, {}),
                                   (peer, {"ATEN_CPU_CAPABILITY": "default"})):
            file = Path(folder, f"losses-{len(curves)}")
            measured([*program, *options, file], o.threads, **variables)
            curves.append([float(line) for line in file.read_text().split()])
    mine, theirs, again = curves
    apart = [max(abs(a - b) for a, b in zip(theirs, other, strict=True)) for other in (mine, again)]
    return (f"| {model} | {form} | {batch} x {o.seq} | {len(mine)} | {mine[0]:.4f} | {mine[-1]:.4f} | {apart[0]:.1e} | "
            f"{apart[1]:.1e} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--python", type=shlex.split, default=["python3"], help="the command that runs PyTorch")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS))
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 4])
    parser.add_argument("--seq", type=int, default=512, help="the tokens of a text")
    parser.add_argument("--steps", type=int, default=4, help="that a run measures")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--losses", type=int, help="compare so many losses instead")
    parser.add_argument("--folder", help="where weights lie that are made")
    parser.add_argument("--output", type=Path)
    o = parser.parse_args()
    lines = ["| model | adapters | texts | s a step | PEFT | ratio | CPU s | PEFT | ratio | MiB over idle | PEFT | ratio |",
             "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"]
    if o.losses:
        lines = ["| model | adapters | texts | steps | first loss | last | from PyTorch's by | PyTorch's from its own by |",
                 "|---|---|---:|---:|---:|---:|---:|---:|"]
    print("\n".join(lines))
    for model, form, batch in [(m, f, b) for m in o.models for f in o.forms for b in o.batches]:
        lines.append((losses if o.losses else row)(o, model, form, batch))
        print(lines[-1], flush=True)
    if o.output and not o.losses:
        cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "")
        o.output.write_text(f"""# Training adapters beside PEFT

- command: `benchmarks/lora.py`, medians of {o.rounds} rounds in turns, {o.steps} steps each after a first one, {o.threads} threads
- machine: {cpu}
- adapters of rank 8 on all linear layers, texts of {o.seq} tokens, f32, AdamW; PEFT recomputes each layer
  (gradient checkpointing) where ours has a segment per layer; memory is the most of the process over what it held before
  the model was made

""" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
