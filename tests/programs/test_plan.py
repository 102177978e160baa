#!/usr/bin/env python3
"""Compares plans of the example programs with their runs, and tests training that is resumed.
Usage: test_plan.py FOLDER_OF_EXAMPLES"""

import json
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from program_data import png_file

EXAMPLES = Path(sys.argv[1]).resolve()
WORDS = "the license grants you a right to use this work under these terms and no other".split()


def run(folder, *command, fails=False):
    program, *options = command
    result = subprocess.run([EXAMPLES / program, *options], capture_output=True, text=True,
                            timeout=300, cwd=folder)
    expect((result.returncode != 0) == fails, "exit status", command, result.stdout, result.stderr)
    return result.stderr if fails else result.stdout


def expect(condition, what, *details):
    if not condition:
        sys.exit(f"{what}:\n" + "\n".join(str(d) for d in details))


def report(folder, *command):
    run(folder, *command, "--report", "report.json")
    return json.loads((folder / "report.json").read_text())


def same_peak(folder, *command):
    """Compares a plan that is made without any data with the run that it predicts."""
    plan = report(folder, *command, "--plan")["memory"]
    real = report(folder, *command, "--quiet")["device"]
    expect(plan["peak"] == real["memory"]["peak"] == real["predicted_peak"], "peaks", command, plan,
           real)
    savings = real["savings"]
    expect(savings[0]["peak"] - sum(row["saved"] for row in savings) == plan["peak"], "savings",
           savings)


def png(height, width, grey):
    return png_file(height, width, b"".join(b"\0" + bytes([grey]) * width for _ in range(height)), colours=0)


def write_data(folder):
    draw = random.Random(1)
    cifar, mnist, task = (folder / name for name in ("cifar", "mnist", "task"))
    for data in (cifar, mnist, task):
        data.mkdir()
    for name in [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]:
        images = [bytes([draw.randrange(10)]) + draw.randbytes(3072) for _ in range(4)]
        (cifar / f"{name}.bin").write_bytes(b"".join(images))
    for name, count in (("train", 240), ("t10k", 300)):
        (mnist / f"{name}-images-idx3-ubyte").write_bytes(
            struct.pack(">4i", 0x803, count, 28, 28) + draw.randbytes(count * 784))
        (mnist / f"{name}-labels-idx1-ubyte").write_bytes(
            struct.pack(">2i", 0x801, count) + bytes(draw.randrange(10) for _ in range(count)))
    text = [" ".join(draw.choices(WORDS, k=30)) + "." for _ in range(60)]
    (folder / "text.txt").write_text("\n".join(text))
    for name in ("train", "dev"):
        rows = [f"{' '.join(draw.choices(WORDS, k=draw.randrange(3, 30)))}\t{i % 2}" for i in range(20)]
        (task / f"{name}.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    for speaker in ("a", "b", "c"):
        where = folder / "speech" / speaker / "1"
        where.mkdir(parents=True)
        lines = []
        for i in range(4):
            samples = [draw.randrange(-9000, 9000) for _ in range(8000 + 3000 * i)]
            data = struct.pack(f"<{len(samples)}h", *samples)
            (where / f"{speaker}{i}.wav").write_bytes(
                struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + len(data), b"WAVE", b"fmt ", 16, 1, 1, 16000, 32000, 2,
                            16, b"data", len(data)) + data)
            lines.append(f"{speaker}{i} {' '.join(draw.choices(WORDS, k=1 + i // 2))}\n")
        (where / f"{speaker}-1.trans.txt").write_text("".join(lines))
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "."]
    (folder / "vocab.txt").write_text("\n".join([*specials, *sorted(set(WORDS))]) + "\n")


def test_peaks(folder):
    cifar = ("resnet", "--data", "cifar", "--model", "resnet8", "--batch", "8", "--steps", "3")
    same_peak(folder, *cifar, "--device", "cpu", "--dtype", "f32")
    same_peak(folder, *cifar, "--checkpoint", "block", "--accumulate", "2")
    exact = (*cifar, "--accumulate", "2", "--exact-batch-norm")
    same_peak(folder, *exact, "--checkpoint", "block", "--dtype", "bf16")
    error = run(folder, *exact, "--memory-budget", "2500KiB", fails=True)
    expect("one for each micro-batch: use --checkpoint" in error, "a budget of many tapes", error)
    same_peak(folder, *cifar, "--device", "vulkan", "--memory-budget", "2500KiB")
    same_peak(folder, *cifar, "--check-numerics", "1", "--gradient-ranges", "--loss-scale", "tensorflow:64:2")
    # With photographs, the plan counts the folders, and the run opens the files.
    for name, shade in (("a", 40), ("b", 90), ("c", 160)):
        (folder / "photos" / name).mkdir(parents=True)
        for i in range(4):
            (folder / f"photos/{name}/{i}.png").write_bytes(png(20, 30, shade + i))
    photos = ("resnet", "--data", "photos", "--batch", "2", "--steps", "2")
    same_peak(folder, *photos, "--image", "72")
    same_peak(folder, *photos, "--image", "24", "--model", "resnet8", "--checkpoint", "block")
    title = run(folder, "resnet", "--plan", "--image", "224")
    expect("resnet18 for 224x224 images of 10 classes" in title, "a plan for photographs", title)
    # Two whole windows: the peak is in the second one.
    text = ("bert", "--text", "text.txt", "--vocab", "vocab.txt", "--seq", "24", "--batch", "4",
            "--steps", "4", "--save", "model")
    for segments in ("none", "block"):
        same_peak(folder, *text, "--checkpoint", segments)
    same_peak(folder, *text, "--optimizer", "adamw-8bit", "--offload", "states")
    same_peak(folder, *text, "--offload", "parameters+updates")
    # The longest sentences of a run are known only from the data.
    tuned = report(folder, "bert", "finetune", "--task", "task", "--model", "model", "--batch", "4",
                   "--seq", "32", "--quiet")["device"]
    expect(tuned["memory"]["peak"] == tuned["predicted_peak"], "fine-tuning", tuned)
    # Some steps begin like a shorter one, and are laid out anew from where they differ.
    expect(tuned["memory"]["plan_misses"] <= 2 * tuned["memory"]["followed_steps"], "sentences of all lengths", tuned)
    speech = ("asr", "--data", "speech", "--hidden", "32", "--batch", "3", "--save", "net")
    for steps in ("1", "4"):
        same_peak(folder, *speech, "--steps", steps)
    same_peak(folder, *speech, "--steps", "4", "--checkpoint", "block", "--accumulate", "2")
    same_peak(folder, *speech, "--steps", "3", "--loss", "rnnt", "--dtype", "f32", "--device", "cpu")
    title = run(folder, "asr", "--plan", "--seconds", "2", "--layers", "2")
    expect("ctc recogniser of 10 words, 2 LSTMs of 128" in title, "a plan for digits", title)
    mnist = report(folder, "mnist", "--data", "mnist", "--images", "20", "--epochs", "1",
                   "--accumulate", "5", "--quiet")
    for run_ in mnist["runs"]:
        expect(run_["peak_bytes"] == run_["memory"]["predicted_peak"], "mnist", run_)


def test_files(folder):
    """Tests profiles, timelines and traces, of plans and of runs."""
    tiny = ("resnet", "--data", "cifar", "--model", "resnet8", "--batch", "4")
    pictures = ("--timeline", "page.html", "--trace", "trace.json")
    for command in (("--device", "vulkan", "--steps", "4", "--save-profile", "device.json"),
                    ("--plan", "--device", "dry:device.json")):
        run(folder, *tiny, *command, *pictures)
        expect((folder / "page.html").read_text().lower().startswith("<!doctype html>"), "no page")
        expect(json.loads((folder / "trace.json").read_text())["traceEvents"], "no events")
        for file in pictures[1::2]:
            (folder / file).unlink()
    error = run(folder, *tiny, "--device", "dry:device.json", fails=True)
    expect("only --plan" in error, "training on a dry device", error)


def remedies_in(error):
    """Returns the lists of options that the end of an error names."""
    return [line[2:].split("  ")[0].split() for line in error.splitlines() if line.startswith("  --")]


def with_options(command, options):
    """Returns the command with options added, or with other values if it has them."""
    command = list(command)
    for name, value in zip(*[iter(options)] * 2):
        if name in command:
            command[command.index(name) + 1] = value
        else:
            command += [name, value]
    return command


def sweep(folder, limits, *command):
    """With less memory than a program needs, it refuses and names options, with each of which it runs to its end."""
    tried = 0
    for limit in limits:
        limited = (*command, "--memory-limit", str(limit))
        error = run(folder, *limited, fails=True)
        remedies = remedies_in(error)
        expect(remedies or "that was tried fits" in error, "no remedies", limited, error)
        for remedy in remedies:
            run(folder, *with_options(limited, remedy))
            tried += 1
    return tried


def test_out_of_memory(folder):
    """The options that an error suggests work when they are added to the command line."""
    big = ("resnet", "--data", "cifar", "--model", "resnet8", "--batch", "20", "--dtype", "f32",
           "--memory-limit", "11MiB", "--steps", "1", "--quiet")
    for command in (big, (*big, "--plan")):
        error = run(folder, *command, fails=True)
        expect(len(remedies_in(error)) >= 3, "remedies", error)
    error = run(folder, *big, "--memory-budget", "1000", fails=True)
    expect("the least that recomputation reaches is" in error, "infeasible budget", error)


def test_other_vocabulary(folder):
    """A vocabulary of another size than the model's is an error that names both."""
    words = (folder / "model/vocab.txt").read_text().splitlines()
    task = ("--task", "task", "--model", "other", "--seq", "32", "--steps", "1", "--device", "cpu")
    for change, size in (([*words, "one", "more"], len(words) + 2), (words[:-1], len(words) - 1)):
        shutil.copytree(folder / "model", folder / "other")
        (folder / "other/vocab.txt").write_text("\n".join(change) + "\n")
        for command in (("fill-mask", "the [MASK] terms", "--model", "other", "--device", "cpu"),
                        ("finetune", *task)):
            error = run(folder, "bert", *command, fails=True)
            expect(f"has {size} tokens and " in error and f"a vocab_size of {len(words)}" in error,
                   "another vocabulary", error)
        shutil.rmtree(folder / "other")
    shutil.copytree(folder / "model", folder / "other")
    (folder / "other/vocab.txt").write_text("\n".join([*words[:-2], words[-1], words[-2]]) + "\n")
    error = run(folder, "bert", "fill-mask", "the [MASK] terms", "--model", "other", "--device", "cpu", fails=True)
    expect("vocab.txt' must be the file that was written with the others" in error, "words that changed places", error)
    shutil.rmtree(folder / "other")


def test_limits(folder):
    tiny = ("resnet", "--data", "cifar", "--model", "resnet8", "--batch", "4", "--steps", "1")
    for option in ("--memory-limit", "--memory-budget"):
        error = run(folder, *tiny, option, "0.0001B", fails=True)
        expect("at least a byte" in error, "no limit", error)


def need_of(folder, *command):
    """Returns the peak and the blocks, in bytes, that a program says it needs when it has next to nothing."""
    error = run(folder, *command, "--memory-limit", "4KiB", fails=True)
    found = re.search(r"run as it is needs (\S+) (\w+) \((\S+) (\w+) in blocks\)", error)
    expect(found, "no need", command, error)
    units = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
    peak, unit, blocks, unit_of_blocks = found.groups()
    return float(peak) * units[unit], float(blocks) * units[unit_of_blocks]


def test_memory_limits(folder):
    """Runs every program at limits below its need: evaluation, loading and saving fit, too."""
    plain = ("--device", "reference")  # whose kernels need no scratch, on machines with any number of cores
    f32 = (*plain, "--dtype", "f32")
    net = ("resnet", "--data", "cifar", "--model", "resnet8", "--quiet", *f32)
    train = (*net, "--batch", "10", "--steps", "2", "--save", "out")
    test = (*net, "--batch", "4", "--load", "out", "--eval")
    text = ("bert", "--text", "text.txt", "--vocab", "vocab.txt", "--seq", "24", "--batch", "8",
            "--checkpoint", "none", "--steps", "2", "--save", "model", "--quiet", *f32)
    tune = ("bert", "finetune", "--task", "task", "--model", "model", "--batch", "6", "--seq", "32",
            "--checkpoint", "none", "--epochs", "1", "--save", "tuned", "--quiet", *f32)
    fill = ("bert", "fill-mask", "the [MASK] terms", "--model", "model", *f32)
    digits = ("mnist", "--data", "mnist", "--epochs", "1", "--accumulate", "20", "--batch", "10",
              "--quiet", *plain)
    for least, fractions, command in (
            (8, (0.9, 0.7, 0.5), train),
            (2, (0.9, 0.7), test),
            (3, (0.9, 0.7, 0.5), text),
            (2, (0.9, 0.7, 0.5), tune),
            (0, (0.9,), fill),
            (2, (0.97, 0.94, 0.91), (*digits, "--runs", "batch")),
            (0, (0.995, 0.985), (*digits, "--runs", "accumulate")),
            (1, (0.96,), (*digits, "--runs", "single,batch"))):
        alone = command[:-1] + ("batch",) if "--runs" in command and "," in command[-1] else command
        if "--save" in command or "--runs" in command:
            run(folder, *command)
        peak, blocks = need_of(folder, *alone)
        tried = sweep(folder, [int(peak * f) for f in fractions], *command)
        expect(tried >= least, "too few remedies", command, peak, tried)
        # The options that it names are enough.
        if alone == command:
            run(folder, *command, "--memory-limit", str(int(blocks)))


def test_profiles(folder):
    """Plans for the committed profiles of devices that are not present."""
    profiles = sorted((Path(__file__).resolve().parent.parent.parent / "benchmarks/profiles").glob("*.json"))
    expect(len(profiles) >= 10, "profiles", profiles)
    for profile in profiles:
        for program in ("resnet", "bert"):
            for dtype in ("f32", "f16"):
                plan = report(folder, program, "--plan", "--device", f"dry:{profile}", "--dtype", dtype)
                expect(0 < plan["memory"]["peak"] <= plan["memory"]["peak_reserved"], "peak", profile, plan)

    # Profiles are found by name, after a file of that name in the current folder.
    named = ("mnist", "--plan", "--data", "mnist", "--images", "64", "--device", "dry:rx7900xtx.json")
    expect("RX 7900 XTX" in run(folder, *named), "profile by name")
    error = run(folder, *named[:-1], "dry:rx9999.json", fails=True)
    expect("'rx9999.json' must be a file, or one of these profiles:" in error, error)
    expect("apple-m1.json" in error and "rx7900xtx.json" in error, error)
    (folder / "rx7900xtx.json").write_text("{}")
    expect("is missing" in run(folder, *named, fails=True), "a file here goes first")


def test_notes(folder):
    """Segments that do not pay are named, once: here the update of the weights needs most."""
    command = ("mnist", "--data", "mnist", "--epochs", "1", "--images", "4", "--runs", "single",
               "--device", "cpu", "--report", "report.json")
    for checkpoint, notes in (("none", 0), ("block", 1)):
        result = subprocess.run([EXAMPLES / command[0], *command[1:], "--checkpoint", checkpoint],
                                capture_output=True, text=True, timeout=300, cwd=folder, check=True)
        expect(result.stderr.count("note: not all checkpoint segments pay") == notes, "notes", result.stderr)
        problems = json.loads((folder / "report.json").read_text())["runs"][0]["memory"]["segment_problems"]
        expect(bool(problems) == bool(notes), "problems", problems)


def test_fit(folder):
    plan = report(folder, "resnet", "--plan", "--fit", "100MiB", "--accumulate", "2")
    rows = plan["fit"]["rows"]
    expect({row["dtype"] for row in rows} == {"f16", "f32"}, "dtypes", rows)
    expect({row["accumulate"] for row in rows} == {1, 2}, "accumulation", rows)
    expect(all(row["batch"] > 0 and row["reserved"] <= 100 << 20 for row in rows), "rows", rows)
    expect(plan["estimate"]["estimate"] > plan["estimate"]["exact"]["peak"], "estimate", plan)


def test_resume(folder):
    """Training that is resumed from an older snapshot ends with the same weights."""
    often = ("--accumulate", "2", "--device", "cpu", "--resume", "snapshots")
    for weights, *command in (
            ("out", "resnet", "--data", "cifar", "--model", "resnet8", "--batch", "4", "--steps", "9",
             "--snapshot-every", "3", "--save", "out"),
            ("model/model.safetensors", "bert", "--text", "text.txt", "--vocab", "vocab.txt", "--seq", "24",
             "--batch", "16", "--steps", "14", "--snapshot-every", "5", "--save", "model")):
        run(folder, *command, *often)
        trained = (folder / weights).read_bytes()
        (folder / weights).unlink()
        older, newest = sorted((folder / "snapshots").glob("step-*"))
        newest.unlink()
        text = run(folder, *command, *often)
        expect(f"resuming after step {int(older.stem.split('-')[1])} " in text, "not resumed", text)
        expect((folder / weights).read_bytes() == trained, "other weights", command)
        error = run(folder, *command, *often, "--lr", "0.5", fails=True)
        expect("is of another run" in error, "another run", error)
        shutil.rmtree(folder / "snapshots")


with tempfile.TemporaryDirectory() as name:
    here = Path(name)
    write_data(here)
    test_peaks(here)
    test_files(here)
    test_out_of_memory(here)
    test_other_vocabulary(here)
    test_limits(here)
    test_memory_limits(here)
    test_profiles(here)
    test_notes(here)
    test_fit(here)
    test_resume(here)
print("plans are right, training goes on")
