#!/usr/bin/env python3
"""Compares the same trainings in f32, f16 and bf16: loss, accuracy, memory, time.

ResNet-20 on CIFAR-10 and BERT-mini with masked tokens, each with the programs of `apps/`, from the same
seeds and in turn, so that a busy machine slows all of them down. Prints Markdown.

    benchmarks/accuracy.py --build build --cifar DIR --text FILE [--seeds 3] [--steps 300 200]
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

DTYPES = ["f32", "f16", "bf16"]


def run(command, report):
    done = subprocess.run(command + ["--quiet", "--report", report], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return json.loads(pathlib.Path(report).read_text())


def trainings(options, folder):
    """Returns (title, command of a dtype and a seed, keys of the held-out figures in its report) for each training."""
    if options.cifar:
        yield (f"ResNet-20, CIFAR-10, batch 64, {options.steps[0]} steps",
               lambda dtype, seed: [f"{options.build}/apps/resnet", "--data", options.cifar, "--model", "resnet20",
                                    "--batch", "64", "--steps", str(options.steps[0]), "--dtype", dtype,
                                    "--seed", str(seed)],
               {"test accuracy": "test_accuracy"})
    if options.text:
        yield (f"BERT-mini, masked tokens, batch 16 of 64 tokens, {options.steps[1]} steps",
               lambda dtype, seed: [f"{options.build}/apps/bert", "--text", options.text, "--model", "mini",
                                    "--accumulate", "1", "--checkpoint", "none", "--steps", str(options.steps[1]),
                                    "--dtype", dtype, "--seed", str(seed), "--save", f"{folder}/bert-{dtype}"],
               {"held-out loss": "held_out_loss", "held-out accuracy": "held_out_accuracy"})


def spread(values, digits):
    mean = statistics.fmean(values)
    return f"{mean:.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def table(title, command, figures, options, folder):
    reports = {dtype: [] for dtype in DTYPES}
    for seed in range(1, options.seeds + 1):
        for dtype in DTYPES:
            reports[dtype].append(run(command(dtype, seed), f"{folder}/report.json"))
            print(f"{title}: {dtype}, seed {seed} done", file=sys.stderr)
    print(f"\n## {title}\n\n`{' '.join(command('DTYPE', 'SEED'))}`\n".replace(str(folder), "FOLDER"))
    names = ["last training loss", *figures, "activations at the peak, MiB", "peak, MiB", "ms a step",
             "updates skipped"]
    print(f"| dtype | {' | '.join(names)} |\n|{'---|' * (len(names) + 1)}")
    for dtype, all_reports in reports.items():
        cells = [spread([r["history"][-1]["loss"] for r in all_reports], 3)]
        cells += [spread([r[key] for r in all_reports], 3) for key in figures.values()]
        memory = all_reports[0]["device"]["memory"]
        cells += [f"{memory[key] / 2**20:.2f}" for key in ("activations", "peak")]
        cells.append(spread([1000 * r["step_seconds"] for r in all_reports], 0))
        cells.append(" ".join(str(r["skipped_updates"]) for r in all_reports))
        print(f"| {dtype} | {' | '.join(cells)} |")
    return all_reports[0]["device"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build", help="where the programs were built")
    parser.add_argument("--cifar", help="folder with CIFAR-10's binary files")
    parser.add_argument("--text", help="text for BERT")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, nargs=2, default=[300, 200], metavar=("RESNET", "BERT"))
    options = parser.parse_args()
    if not (options.cifar or options.text):
        parser.error("nothing to train on: --cifar DIR, --text FILE")
    with tempfile.TemporaryDirectory() as folder:
        for title, command, figures in trainings(options, folder):
            device = table(title, command, figures, options, folder)
    print(f"\n- device: {device['name']}, {device['driver']}")


if __name__ == "__main__":
    main()
