#!/usr/bin/env python3
"""Rules for the learning rate of other batches: a ResNet on CIFAR-10, equally many images, by accumulation.

The batches are made of the same micro-batches, so BatchNorm sees the same in all of them. Prints Markdown.

    benchmarks/learning_rate.py --build build --cifar DIR [--model resnet8] [--epochs 6]
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

MICRO_BATCH, REFERENCE = 32, 128


def train(options, batch, rule, seed, report):
    command = [f"{options.build}/apps/resnet", "--data", options.cifar, "--model", options.model,
               "--batch", str(MICRO_BATCH), "--accumulate", str(batch // MICRO_BATCH),
               "--epochs", str(options.epochs), "--lr", str(options.lr), "--scale-lr", rule,
               "--reference-batch", str(REFERENCE), "--seed", str(seed), "--quiet", "--report", report]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return json.loads(pathlib.Path(report).read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build", help="where the programs were built")
    parser.add_argument("--cifar", required=True, help="folder with CIFAR-10's binary files")
    parser.add_argument("--model", default="resnet8")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--lr", type=float, default=0.1, help=f"at a batch of {REFERENCE}")
    parser.add_argument("--batches", type=int, nargs="+", default=[32, 128, 512])
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    print("| batch | rule | learning rate | updates | last training loss | test accuracy |\n|---:|---|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        for batch in options.batches:
            for rule in ["none"] if batch == REFERENCE else ["none", "sqrt", "linear"]:
                reports = [train(options, batch, rule, seed, f"{folder}/report.json")
                           for seed in range(1, options.seeds + 1)]
                factor = batch / REFERENCE
                rate = options.lr * {"none": 1, "sqrt": factor ** 0.5, "linear": factor}[rule]
                loss = sum(r["history"][-1]["loss"] for r in reports) / len(reports)
                accuracy = sum(r["test_accuracy"] for r in reports) / len(reports)
                print(f"| {batch} | {rule} | {rate:.3g} | {reports[0]['updates']} | {loss:.3f} | "
                      f"{100 * accuracy:.1f} % |", flush=True)


if __name__ == "__main__":
    main()
