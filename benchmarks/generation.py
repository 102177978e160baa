#!/usr/bin/env python3
"""Measures how fast `lm generate` reads a prompt and draws tokens, beside llama.cpp's llama-bench on the same GGUF files,
in turns, and writes a table. Without --models, one of SmolLM2-135M's shape with random weights is made, which costs as much
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
    """Returns what a command prints, and its peak memory in MiB."""
    environment = dict(os.environ, **({"OMP_NUM_THREADS": str(threads)} if threads else {}))
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen([str(word) for word in command], stdout=out, stderr=out, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read()
    if process.returncode:
        raise SystemExit(f"{command}: {text}")
    return text, usage.ru_maxrss / 1024


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


def ours(o, model):
    """Returns tokens per second of the prompt and of what is drawn, MiB, the tokens of the prompt, and the dtype."""
    words = (ROOT / "README.md").read_text().split()
    text, memory = run(o.build / "apps/lm", "generate", " ".join(words[:o.words]), "--model", model, "--device", o.device,
                       *(["--dtype", o.dtype] if o.dtype else []), "--temperature", "0", "--max-new-tokens", o.tokens + 1,
                       threads=o.threads)
    prompt, read, _, drawn, dtype = RATES.search(text).groups()
    return float(read), float(drawn), memory, int(prompt), dtype


def theirs(o, model, prompt):
    out, memory = run(*shlex.split(o.llama), "-m", str(model).replace(*o.seen_as) if o.seen_as else model, "-p", prompt,
                      "-n", o.tokens, "-t", o.threads, "-r", 1, "-o", "json")
    rows = json.loads(out[out.index("[\n"):out.rindex("]") + 1])
    return *(next(r["avg_ts"] for r in rows if bool(r["n_gen"]) == drawn) for drawn in (False, True)), memory


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
            mine, other = [], []
            for _ in range(o.rounds):
                mine.append(ours(o, model))
                other.append(theirs(o, model, mine[-1][3]) if o.llama else (float("nan"),) * 3)
            cells = [kind, mine[0][4]]
            for i, digits in enumerate((1, 1, 0)):
                a, b = (statistics.median(r[i] for r in rates) for rates in (mine, other))
                cells += [f"{a:.{digits}f}", f"{b:.{digits}f}", f"{a / b:.2f}"]
            lines.append("| " + " | ".join(cells) + " |")
            print(lines[-1], flush=True)
    if o.output:
        cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "")
        what = "files that were given" if o.models else "a model of SmolLM2-135M's shape with random weights"
        o.output.write_text(f"""# Reading prompts and drawing tokens

- command: `./rewind bench generation --llama 'llama-bench'`, medians of {o.rounds} rounds in turns, prompts of
  {mine[-1][3]} tokens, {o.tokens} tokens drawn greedily, {o.threads} threads
- machine: {cpu}, device {o.device}
- {what}; Rewind reads quantised weights into the dtype that it
  computes in; memory is the most of the process

""" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
