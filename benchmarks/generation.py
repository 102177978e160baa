#!/usr/bin/env python3
"""Measures how fast `lm generate` reads a prompt and draws tokens, beside llama.cpp's llama-bench on the same GGUF files,
in turns, and writes a table. The model has the shape of SmolLM2-135M and random weights, which cost as much as trained
ones. Usage: generation.py --llama 'COMMAND llama-bench' [--rounds N] [--output FILE]"""

import argparse
import json
import re
import shlex
import statistics
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RATES = re.compile(r"(\d+) tokens read in \S+ s \(([\d.]+)/s\), (\d+) more in \S+ s \(([\d.]+)/s\)")


def run(*command):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if result.returncode:
        raise SystemExit(f"{command}: {result.stdout}{result.stderr}")
    return result


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


def ours(o, model, dtype):
    """Returns tokens per second of the prompt and of what is drawn, and the tokens of the prompt."""
    words = (ROOT / "README.md").read_text().split()
    result = run(o.build / "apps/lm", "generate", " ".join(words[:o.words]), "--model", model, "--device", o.device, "--dtype",
                 dtype, "--temperature", "0", "--max-new-tokens", str(o.tokens + 1))
    prompt, read, _, drawn = RATES.search(result.stderr).groups()
    return float(read), float(drawn), int(prompt)


def theirs(o, model, prompt):
    out = run(*shlex.split(o.llama), "-m", str(model).replace(*o.seen_as) if o.seen_as else model, "-p", prompt, "-n", o.tokens,
              "-t", o.threads, "-r", 1, "-o", "json").stdout
    rows = json.loads(out[out.index("["):])
    return tuple(next(r["avg_ts"] for r in rows if bool(r["n_gen"]) == drawn) for drawn in (False, True))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--llama", help="the command that runs llama-bench; without it only ours is measured")
    parser.add_argument("--folder", help="where the models lie meanwhile; and, behind a colon, as llama-bench sees it")
    parser.add_argument("--types", nargs="+", default=["f16", "q8_0"])
    parser.add_argument("--words", type=int, default=150, help="of the prompt")
    parser.add_argument("--tokens", type=int, default=64, help="that are drawn")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path)
    o = parser.parse_args()
    here, _, there = (o.folder or "").partition(":")
    o.seen_as = (here, there) if there else None
    lines = ["| file | computed in | prompt, tokens/s | llama.cpp | ratio | drawn, tokens/s | llama.cpp | ratio |",
             "|---|---|---:|---:|---:|---:|---:|---:|"]
    with tempfile.TemporaryDirectory(dir=here or None) as folder:
        for kind, model in make_models(o, Path(folder)).items():
            for dtype in ("f16", "f32"):
                mine, other = [], []
                for _ in range(o.rounds):
                    mine.append(ours(o, model, dtype))
                    other.append(theirs(o, model, mine[-1][2]) if o.llama else (float("nan"),) * 2)
                cells = [kind, dtype]
                for i in (0, 1):
                    a, b = (statistics.median(r[i] for r in rates) for rates in (mine, other))
                    cells += [f"{a:.1f}", f"{b:.1f}", f"{a / b:.2f}"]
                lines.append("| " + " | ".join(cells) + " |")
                print(lines[-1], flush=True)
    if o.output:
        cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "")
        o.output.write_text(f"""# Reading prompts and drawing tokens

- command: `python3 benchmarks/generation.py --llama 'llama-bench'`, medians of {o.rounds} rounds in turns, prompts of
  {mine[-1][2]} tokens, {o.tokens} tokens drawn greedily, {o.threads} threads
- machine: {cpu}, device {o.device}
- a model of SmolLM2-135M's shape with random weights; Rewind reads quantised weights into the dtype that it computes in

""" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
