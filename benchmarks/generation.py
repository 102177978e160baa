#!/usr/bin/env python3
"""Measures how fast `lm generate` reads a prompt and draws tokens behind it, beside llama.cpp's llama-bench on the same GGUF
files, in turns, and writes a table. Without --models, one of SmolLM2-135M's shape with random weights is made, which costs as much
as a trained one. Usage: generation.py --llama 'COMMAND llama-bench' [--models FILE.gguf...] [--output FILE]"""

import argparse
import json
import os
import re
import shlex
import statistics
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RATES = re.compile(r"(\d+) tokens read in \S+ s \(([\d.]+)/s\), (\d+) more in \S+ s \(([\d.]+)/s\).* in (\w+) on ")


def run(*command, threads=0):
    """Returns what a command prints, its peak memory in MiB, and its CPU seconds."""
    environment = dict(os.environ, **({"OMP_NUM_THREADS": str(threads)} if threads else {}))
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen([str(word) for word in command], stdout=out, stderr=out, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read()
    if process.returncode:
        raise SystemExit(f"{command}: {text}")
    return text, usage.ru_maxrss / 1024, usage.ru_utime + usage.ru_stime


def make_models(o, folder):
    """Returns the files by the names of their types."""
    text = folder / "text.txt"
    text.write_text((ROOT / "README.md").read_text() * 4)
    run(o.build / "apps/lm", "train", "--device", "cpu", "--dtype", "f32", "--config", "smollm2-135m", "--data", text, "--seq",
        "16", "--batch", "1", "--steps", "1", "--sample", "", "--quiet", "--save", folder / "f32.gguf")
    files = {}
    for kind in o.types:
        files[kind] = folder / f"{kind}.gguf"
        run(o.build / "apps/lm", "convert", folder / "f32.gguf", files[kind], "--type", kind)
    (folder / "f32.gguf").unlink()
    return files


def ours(o, model, tokens, count=None):
    words = (ROOT / "README.md").read_text().split()
    return run(o.build / "apps/lm", "generate", " ".join(words[:count or o.words]), "--model", model, "--device", o.device,
               *(["--dtype", o.dtype] if o.dtype else []), "--temperature", "0", "--max-new-tokens", tokens + 1,
               threads=o.threads)


def theirs(o, model, prompt, tokens, depth=0):
    """Reads a prompt, or draws tokens behind one of `depth` tokens."""
    return run(*shlex.split(o.llama), "-m", str(model).replace(*o.seen_as) if o.seen_as else model, "-p", prompt,
               "-n", tokens, "-d", depth, "-t", o.threads, "-r", 1, "-o", "json")


def measure(o, model):
    """Returns the dtype, the tokens of the prompt, and for each program tokens per second read and drawn, and MiB."""
    text, memory, _ = ours(o, model, o.tokens)
    prompt, read, _, drawn, dtype = RATES.search(text).groups()
    other = (float("nan"),) * 3
    if o.llama:
        runs = theirs(o, model, prompt, 0), theirs(o, model, 0, o.tokens, prompt)
        other = *(json.loads(text[text.index("[\n"):text.rindex("]") + 1])[0]["avg_ts"] for text, *_ in runs), runs[1][1]
    return dtype, prompt, (float(read), float(drawn), memory), other


def measure_cpu(o, model):
    """The same by CPU seconds, of runs of two lengths each, in which what is done once cancels out."""
    few, read, drawn = o.tokens // 8, [], []
    for words in (max(1, o.words // 8), o.words):
        text, memory, seconds = ours(o, model, 0, words)
        prompt, *_, dtype = RATES.search(text).groups()
        others = theirs(o, model, prompt, 0) if o.llama else (None, float("nan"), float("nan"))
        read.append((int(prompt), seconds, others[2]))
    for tokens in (few, o.tokens):
        others = theirs(o, model, 0, tokens, prompt) if o.llama else (None, float("nan"), float("nan"))
        drawn.append((tokens, ours(o, model, tokens)[2], others[2]))

    def rate(runs, program):
        (few, *short), (many, *long) = runs
        return (many - few) / (long[program] - short[program]) if many > few else float("nan")
    mine, their = ((rate(read, i), rate(drawn, i), used) for i, used in enumerate((memory, others[1])))
    return dtype, prompt, mine, their


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--llama", help="the command that runs llama-bench; without it only ours is measured")
    parser.add_argument("--folder", help="where the models lie meanwhile; and, behind a colon, as llama-bench sees it")
    parser.add_argument("--models", type=Path, nargs="+", help="GGUF files to measure")
    parser.add_argument("--types", nargs="+", default=["f16", "bf16", "q8_0"], help="of the model that is made otherwise")
    parser.add_argument("--dtype", help="what Rewind computes in; by default as the file says")
    parser.add_argument("--words", type=int, default=150, help="of the prompt")
    parser.add_argument("--tokens", type=int, default=64, help="that are drawn")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cpu-time", action="store_true",
                        help="tokens per CPU second, where other programs use the machine, too; with --threads 1")
    parser.add_argument("--output", type=Path)
    o = parser.parse_args()
    here, _, there = (o.folder or "").partition(":")
    o.seen_as = (here, there) if there else None
    others = " | llama.cpp | ratio | "
    lines = ["| file | computed in | " + others.join(["prompt, tokens/s", "drawn, tokens/s", "MiB", ""]).strip(),
             "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"]
    with tempfile.TemporaryDirectory(dir=here or None) as folder:
        models = {file.name: file for file in o.models} if o.models else make_models(o, Path(folder))
        for kind, model in models.items():
            rounds = [(measure_cpu if o.cpu_time else measure)(o, model) for _ in range(o.rounds)]
            cells = [kind, rounds[0][0]]
            for i, digits in enumerate((1, 1, 0)):
                a, b = (statistics.median(r[program][i] for r in rounds) for program in (2, 3))
                cells += [f"{a:.{digits}f}", f"{b:.{digits}f}", f"{a / b:.2f}"]
            lines.append("| " + " | ".join(cells) + " |")
            print(lines[-1], flush=True)
    if o.output:
        cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "")
        what = "files that were given" if o.models else "a model of SmolLM2-135M's shape with random weights"
        o.output.write_text(f"""# Reading prompts and drawing tokens

- command: `./rewind bench generation --llama 'llama-bench'`, medians of {o.rounds} rounds in turns, prompts of
  {rounds[-1][1]} tokens, {o.tokens} tokens drawn greedily, {o.threads} threads
- machine: {cpu}, device {o.device}
- {what}; Rewind reads quantised weights into the dtype that it
  computes in; memory is the most of the process

""" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
