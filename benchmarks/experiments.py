#!/usr/bin/env python3
"""Runs an experiment: prints a table in Markdown, and makes RESULTS/experiment-NAME.svg.

    ./rewind experiment NAME --data DIR [--device cpu] [--seeds N] [--python COMMAND]

step-memory    memory during one step of ResNet-110: plain, with a segment per block, within a budget (no data)
mnist          one image at a time, accumulated to 100, and in batches of 100 (DIR/mnist)
accumulation   BERT tiny on SST-2: batches of 12 against 10 x 12, equally many sentences (DIR/sst2)
speech         f16 against f32 in ./rewind asr on spoken digits (espeak-ng, no data)
learning-rate  rules for the rate of other batches, ResNet-8 on CIFAR-10 (DIR/cifar-10-batches-bin)
cifar          ResNet-20 on CIFAR-10 here and, with --python, in PyTorch by the same recipe (the same files)
defaults       twelve small tasks by the defaults of the programs, beside PyTorch with --python (what there is of all these)
batch-norm     ResNet-20 on CIFAR-10 in micro-batches: exact and ghost BatchNorm, GroupNorm (the same files)

Experiments whose data are missing are skipped with a note. Reports of runs stay in --reports and are not made again, so
an experiment that was stopped continues."""
import argparse
import json
import pathlib
import shlex
import statistics
import subprocess
import sys

import defaults
import figure

HERE = pathlib.Path(__file__).resolve().parent
ACCURACY = ("test accuracy, %", lambda report: 100 * report["test_accuracy"])


class Experiment:
    """`lines` has, by label, the command of a seed, without --seed and --report. `outcome` is the name of the figure and its
    place in a report."""

    def __init__(self, title, lines, outcome, per_step=1, unit="steps"):
        self.title, self.lines, self.outcome = title, lines, outcome
        self.per_step, self.unit = per_step, unit


def program(o, name, *options):
    file, *subcommand = name.split()
    return [f"{o.build}/apps/{file}", *subcommand, "--device", o.device, "--quiet", *map(str, options)]


def needed(path):
    if not path.exists():
        print(f"skipped: there is no {path}; --data names the folder that has it")
        sys.exit(0)
    return path


def accumulation(o):
    """The model is pre-trained on the sentences of the training file first, once."""
    task, model = needed(o.data / "sst2"), o.reports / "bert-tiny"
    if not (model / "config.json").exists():
        text = o.reports / "sst2.txt"
        rows = (task / "train.tsv").read_text().splitlines()[1:]
        text.write_text("\n".join(row.split("\t")[0] for row in rows))
        run([*program(o, "bert", "--dtype", "f32", "--text", text, "--model", "tiny", "--checkpoint", "none",
                      "--steps", 1500, "--save", model), "--report", str(o.reports / "pretrain.json")])

    def finetune(accumulate, rule):
        return program(o, "bert finetune", "--dtype", "f32", "--task", task, "--model", model, "--batch", 12,
                       "--accumulate", accumulate, "--lr", 5e-4, "--scale-lr", rule, "--reference-batch", 12,
                       "--checkpoint", "none", "--steps", 5610)

    return Experiment("SST-2: batches of 12, and 10 of them to an update",
                      {"12": finetune(1, "none"), "10 x 12, the same rate": finetune(10, "none"),
                       "10 x 12, rate by the square root": finetune(10, "sqrt")},
                      ("dev accuracy, %", lambda report: 100 * report["dev_accuracy"]), 12, "sentences")


def speech(o):
    return Experiment("Spoken digits in f32 and f16",
                      {dtype: program(o, "asr", "--dtype", dtype, "--save", o.reports / "asr.safetensors")
                       for dtype in ("f32", "f16")},
                      ("word error rate, %", lambda report: 100 * report["word_error_rate"]), 8, "utterances")


def learning_rate(o):
    """All batches are made of the same micro-batches, so BatchNorm sees the same in all of them."""
    data = needed(o.data / "cifar-10-batches-bin")
    lines = {}
    for batch in (32, 128, 512):
        for rule in ["none"] if batch == 128 else ["none", "sqrt", "linear"]:
            lines[f"{batch}, {rule}"] = program(
                o, "resnet", "--data", data, "--model", "resnet8", "--batch", 32, "--accumulate", batch // 32,
                "--epochs", 6, "--lr", 0.1, "--scale-lr", rule, "--reference-batch", 128)
    return Experiment("ResNet-8 on CIFAR-10: batch and rule, a rate of 0.1 at 128", lines, ACCURACY, 32, "images")


def cifar(o):
    data = needed(o.data / "cifar-10-batches-bin")
    recipe = ["--data", str(data), "--batch", "128", "--epochs", "20", "--lr", "0.1"]
    lines = {"here, f32": program(o, "resnet", "--model", "resnet20", "--dtype", "f32", *recipe)}
    if o.python:
        lines["PyTorch, f32"] = [*shlex.split(o.python), str(HERE / "peers/resnet_cifar.py"), *recipe]
    return Experiment("ResNet-20 on CIFAR-10", lines, ACCURACY, 128, "images")


def batch_norm(o):
    """Compares norms that see one batch, or 8 micro-batches of 16 images."""
    data = needed(o.data / "cifar-10-batches-bin")
    parts = ["--batch", 16, "--accumulate", 8]
    ways = {"one batch of 128": ["--batch", 128],
            "8 x 16, exact BatchNorm": [*parts, "--exact-batch-norm", "--host-boundaries"],
            "8 x 16, ghost BatchNorm": parts, "8 x 16, GroupNorm": [*parts, "--norm", "group"]}
    lines = {way: program(o, "resnet", "--model", "resnet20", "--dtype", "f32", "--data", data, "--epochs", 6,
                          "--lr", 0.1, *options) for way, options in ways.items()}
    return Experiment("ResNet-20 on CIFAR-10: norms over micro-batches", lines, ACCURACY, 128, "images")


EXPERIMENTS = {"accumulation": (accumulation, 5), "speech": (speech, 3), "learning-rate": (learning_rate, 3),
               "cifar": (cifar, 3), "batch-norm": (batch_norm, 3)}


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{shlex.join(command)} failed:\n{done.stdout}{done.stderr}")


def reports_of(o, name, experiment):
    """Returns the reports of all seeds by label; seeds run in turn."""
    reports = {label: [] for label in experiment.lines}
    for seed in range(1, o.seeds + 1):
        for label, command in experiment.lines.items():
            path = o.reports / f"{name}-{label.replace(' ', '-').replace(',', '')}-{seed}.json"
            if not path.exists():
                print(f"{name}: {label}, seed {seed}", file=sys.stderr, flush=True)
                unfinished = path.with_suffix(".unfinished.json")
                run([*command, "--seed", str(seed), "--report", str(unfinished)])
                unfinished.rename(path)
            reports[label].append(json.loads(path.read_text()))
    return reports


def spread(values, digits=2):
    return f"{statistics.fmean(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def write_experiment(o, name):
    make, seeds = EXPERIMENTS[name]
    o.seeds = o.seeds or seeds
    experiment = make(o)
    reports = reports_of(o, name, experiment)
    what, figure_of = experiment.outcome
    found = {label: [figure_of(report) for report in all_seeds] for label, all_seeds in reports.items()}
    curves = {label: [(points[0]["step"] * experiment.per_step, [p["loss"] for p in points])
                      for points in zip(*(report["history"] for report in all_seeds))]
              for label, all_seeds in reports.items()}
    panels = [figure.Panel(f"training loss by {experiment.unit}", curves),
              figure.Panel(what, {label: [(i, values)] for i, (label, values) in enumerate(found.items())})]
    rows = [f"| | last training loss | {what} | by seed |", "|---|---:|---:|---|"]
    for label, values in found.items():
        losses = [report["history"][-1]["loss"] for report in reports[label]]
        rows.append(f"| {label} | {spread(losses, 3)} | {spread(values)} | {', '.join(f'{v:.2f}' for v in values)} |")
    return f"# {experiment.title}\n\nMean (least to largest) of {o.seeds} seeds.", panels, "\n".join(rows)


def write_mnist(o):
    """Writes the mean training loss of an epoch, with dropout, and the accuracy on the test images after it."""
    report = o.reports / "mnist.json"
    if not report.exists():
        run([*program(o, "mnist", "--data", needed(o.data / "mnist"), "--images", 0, "--epochs", 20), "--report",
             str(report)])
    read = json.loads(report.read_text())
    titles = {"single": "Adam, batch 1", "accumulate": "Accumulate(Adam, 100), batch 1", "batch": "Adam, batch 100"}
    runs = {titles[r["name"]]: r["history"] for r in read["runs"]}

    def curves(value):
        return {label: [(i + 1, [value(epoch)]) for i, epoch in enumerate(history)] for label, history in runs.items()}
    panels = [figure.Panel("training loss by epochs", curves(lambda e: e["train_loss"])),
              figure.Panel("test accuracy, %", curves(lambda e: 100 * e["test_accuracy"]))]
    rows = ["| epoch | " + " | ".join(runs) + " |", "|---:|" + "---:|" * len(runs)]
    for i, epochs in enumerate(zip(*runs.values())):
        cells = (f"{e['train_loss']:.4f}, {100 * e['test_accuracy']:.2f} %" for e in epochs)
        rows.append(f"| {i + 1} | " + " | ".join(cells) + " |")
    return "# MNIST, one image at a time", panels, "\n".join(rows)


def step_of(trace):
    """Returns the FLOPs of a trace's step, and (ms, live MiB) at every change."""
    events = json.loads(trace.read_text())["traceEvents"]
    live = [(e["ts"] / 1e3, sum(e["args"].values()) / 2**20) for e in events if e["name"] == "live bytes"]
    return sum(e["args"]["flops"] for e in events if e.get("cat") == "kernel"), [(t - live[0][0], v) for t, v in live]


def write_step_memory(o):
    """Runs each way `--seeds` times in turn, and shows the quickest step of each, which was disturbed least."""
    ways = {"plain": [], "checkpoint segments (--checkpoint block)": ["--checkpoint", "block"],
            "a budget (--memory-budget 200MiB)": ["--memory-budget", "200MiB"]}
    steps = {way: [] for way in ways}
    for turn in range(o.seeds or 3):
        for i, (way, options) in enumerate(ways.items()):
            trace = o.reports / f"step-memory-{i}-{turn}.json"
            if not trace.exists():
                run([*program(o, "resnet", "--model", "resnet110", "--dtype", "f32", "--batch", 128, "--steps", 3,
                              *options), "--trace", str(trace)])
            steps[way].append(step_of(trace))
    best = {way: min(found, key=lambda step: step[1][-1][0]) for way, found in steps.items()}
    longest = max(live[-1][0] for _, live in best.values())
    (plain_flops, plain_live), *_ = best.values()
    rows, curves = ["| | peak | work | time |", "|---|---:|---:|---:|"], {}
    for way, (flops, live) in best.items():
        peak, more = max(value for _, value in live), f"{100 * (flops / plain_flops - 1):+.0f} % FLOPs"
        rows.append(f"| {way} | {peak:.0f} MiB | {more} | {live[-1][0]:.0f} ms, "
                    f"{100 * (live[-1][0] / plain_live[-1][0] - 1):+.0f} % |")
        highest = {}  # in each pixel
        for time, value in live:
            column = round(time / longest * 720) * longest / 720
            highest[column] = max(value, highest.get(column, 0))
        curves[f"{way}: {peak:.0f} MiB" + (f", {more}" if flops != plain_flops else "")] = [(time, [value]) for time, value in highest.items()]
    panel = figure.Panel("Memory during one training step of ResNet-110, batch 128: MiB over milliseconds", curves, 720, area=True)
    return "# Memory during one step of ResNet-110, batch 128, f32", [panel], "\n".join(rows)


def write_defaults(o):
    """Writes a table without a picture."""
    return defaults.write(o, run, program), [], ""


OTHERS = {"defaults": write_defaults, "step-memory": write_step_memory, "mnist": write_mnist}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=[*OTHERS, *EXPERIMENTS])
    parser.add_argument("--data", type=pathlib.Path, default="data", help="folder of the data sets' folders")
    parser.add_argument("--build", default="build", help="where the programs were built")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, default=0, help="number of seeds (accumulation 5, others 3)")
    parser.add_argument("--python", help="a command that runs a Python with PyTorch")
    parser.add_argument("--reports", type=pathlib.Path, default="build/experiments", help="folder of the runs' reports")
    parser.add_argument("--results", type=pathlib.Path, default=HERE / "results")
    o = parser.parse_args()
    o.reports.mkdir(parents=True, exist_ok=True)
    head, panels, table = OTHERS[o.name](o) if o.name in OTHERS else write_experiment(o, o.name)
    if not panels:
        print(head)
        return
    picture = o.results / f"experiment-{o.name}.svg"
    picture.write_text(figure.svg(panels))
    print(f"{head}\n\n{table}\n\n![{o.name}]({picture.name})")


if __name__ == "__main__":
    main()
