"""The tasks of `./rewind experiment defaults`: what somebody trains first, with nothing but the data and, where it is
needed, how long. Each has a figure in points, of which more is better, and a plain program in PyTorch
(peers/defaults.py) that gets as many samples and its field's usual recipe."""

import json
import math
import random
import struct
import subprocess
import sys
import zlib
from pathlib import Path

PEER = Path(__file__).resolve().parent / "peers/defaults.py"
CIFAR, MNIST, SST2, TEXT = "cifar-10-batches-bin", "mnist", "sst2", "text/tinyshakespeare.txt"
LIMIT = 2  # points that a default may be below its peer

# Whether a point of [-1, 1] x [-1, 1] is in a shape.
SHAPES = {
    "circle": lambda x, y: x * x + y * y < 0.9, "square": lambda x, y: max(abs(x), abs(y)) < 0.85,
    "triangle": lambda x, y: y < 0.8 and y > 2 * abs(x) - 0.8, "diamond": lambda x, y: abs(x) + abs(y) < 0.9,
    "cross": lambda x, y: min(abs(x), abs(y)) < 0.25, "ring": lambda x, y: 0.4 < x * x + y * y < 0.9,
    "bar": lambda x, y: abs(y) < 0.3, "post": lambda x, y: abs(x) < 0.3,
    "corner": lambda x, y: x < -0.4 or y > 0.4, "saltire": lambda x, y: abs(abs(x) - abs(y)) < 0.3}


def accuracy(name):
    return lambda report: 100 * report[name]


def png(height, width, rows):
    chunks = ((b"IHDR", struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0)),
              (b"IDAT", zlib.compress(b"".join(b"\0" + row for row in rows))), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks)


def photograph(draw, inside):
    """A shape of a bright colour, somewhere on dark ground, in a picture of 48 to 90 pixels."""
    height, width = draw.randint(48, 90), draw.randint(48, 90)
    radius = draw.uniform(0.2, 0.32) * min(height, width)
    middle = [draw.uniform(radius, size - radius) for size in (height, width)]
    bright, dark = ([draw.randint(*range_) for _ in range(3)] for range_ in ((150, 255), (0, 60)))

    def pixel(row, column):
        x, y = (column - middle[1]) / radius, (row - middle[0]) / radius
        colour = bright if max(abs(x), abs(y)) < 1 and inside(x, y) else dark
        return bytes(min(255, max(0, c + draw.randint(-12, 12))) for c in colour)
    return png(height, width, (b"".join(pixel(row, column) for column in range(width)) for row in range(height)))


def photographs(folder, names, each):
    """Writes train/ and val/ with a folder for each shape, once; val/ has a quarter as many."""
    draw = random.Random(1)
    for split, count in (("train", each), ("val", max(10, each // 4))):
        for name in names:
            place = folder / split / name
            if place.exists():
                continue
            place.mkdir(parents=True)
            for i in range(count):
                (place / f"{i}.png").write_bytes(photograph(draw, SHAPES[name]))
    return folder


def part_of_text(o, name, first, last):
    """Writes a part of the text, by its bytes, to a file."""
    path = o.reports / f"defaults-{name}.txt"
    path.write_bytes((o.data / TEXT).read_bytes()[first:last])
    return path


def sentences(o, count):
    """A folder with as many sentences to train on, and all those to test with."""
    folder = o.reports / f"defaults-sst2-{count}"
    folder.mkdir(exist_ok=True)
    for name, most in (("train", count + 1), ("dev", None)):
        lines = (o.data / SST2 / f"{name}.tsv").read_text().splitlines()[:most]
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    return folder


def tiny_bert(o, run, program):
    """A tiny BERT that was trained on the sentences, once."""
    model = o.reports / "defaults-bert"
    if not (model / "config.json").exists():
        text = o.reports / "defaults-sst2.txt"
        rows = (o.data / SST2 / "train.tsv").read_text().splitlines()[1:]
        text.write_text("\n".join(row.split("\t")[0] for row in rows))
        run([*program(o, "bert", "--text", text, "--steps", 300, "--save", model)])
    return model


def tasks(o, run, program):
    """Yields (name, the data that it needs, a function that returns its command, its figure, the peer's task). The commands
    leave open what a default is for."""
    def shapes(names, each, *options):
        folder = o.reports / f"defaults-{len(names)}-shapes-{each}"
        return lambda: program(o, "resnet", "--data", photographs(folder, names, each), *options)

    def cifar(*options):
        return lambda: program(o, "resnet", "--data", o.data / CIFAR, *options)
    images, two, ten = accuracy("test_accuracy"), list(SHAPES)[:2], list(SHAPES)
    yield "two shapes, 120 photographs", None, shapes(two, 60), images, "photographs"
    yield "two shapes, 120 photographs, batches of 4", None, shapes(two, 60, "--batch", 4), images, "photographs"
    yield "ten shapes, 400 photographs", None, shapes(ten, 40), images, "photographs"
    yield "two shapes, 1000 photographs, f32", None, shapes(two, 500, "--dtype", "f32", "--epochs", 6), images, "photographs"
    yield "CIFAR-10, 5000 images", CIFAR, cifar("--epochs", 4), images, "cifar"
    yield "CIFAR-10, batches of 256, f32", CIFAR, cifar("--epochs", 4, "--batch", 256, "--dtype", "f32"), images, "cifar"
    yield "CIFAR-10, batches of 16, bf16", CIFAR, cifar("--epochs", 2, "--batch", 16, "--dtype", "bf16"), images, "cifar"
    yield ("MNIST, 6000 digits", MNIST,
           lambda: program(o, "mnist", "--data", o.data / MNIST, "--images", 6000, "--runs", "batch", "--epochs", 3),
           lambda report: 100 * report["runs"][0]["history"][-1]["test_accuracy"], "digits")
    yield ("SST-2, 4000 sentences, from a tiny BERT", SST2,
           lambda: program(o, "bert finetune", "--task", sentences(o, 4000), "--model", tiny_bert(o, run, program)),
           accuracy("dev_accuracy"), "sentences")
    text, model = lambda report: -100 * report["held_out_loss"], o.reports / "defaults-lm"
    yield ("a new language model, 400 steps", TEXT,
           lambda: program(o, "lm train", "--data", part_of_text(o, "new", 0, 600000), "--save", model), text, "text")
    yield ("the same model, another 100 kB of text", TEXT,
           lambda: program(o, "lm train", "--data", part_of_text(o, "more", 900000, 1000000), "--model", model, "--save",
                           o.reports / "defaults-lm-tuned"), text, "text")
    yield ("spoken digits, 600 strings", None,
           lambda: program(o, "asr", "--strings", 600, "--epochs", 12, "--save", o.reports / "defaults-asr.safetensors"),
           lambda report: 100 * (1 - report["word_error_rate"]), "speech")


def peer(o, kind, command, report, path):
    """Runs the peer of a run, which reads from the run's command and report how much it may see. None: there is no Python
    for it. The keys of `points` are those of the peer's report."""
    if not o.python:
        return None
    done = subprocess.run([*o.python.split(), str(PEER), kind, "--command", json.dumps(command), "--report", str(report),
                           "--result", str(path)], capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it was ended"])[-1]
        print(f"{kind}: the program in PyTorch failed: {last}", file=sys.stderr)
        return None
    return json.loads(path.read_text())["points"]


def write(o, run, program):
    """Runs all tasks and returns the table."""
    rows = ["| task | here | PyTorch | difference | learning rate | updates | seconds |", "|---|---:|---:|---:|---:|---:|---:|"]
    worst = math.inf
    for number, (name, data, line, points_of, kind) in enumerate(tasks(o, run, program)):
        if data and not (o.data / data).exists():
            rows.append(f"| {name} | skipped: there is no {o.data / data} | | | | | |")
            continue
        path = o.reports / f"defaults-{number}.json"
        if not path.exists():
            print(f"defaults: {name}", file=sys.stderr, flush=True)
            command = list(map(str, line()))
            unfinished = path.with_suffix(".unfinished.json")
            run([*command, "--report", str(unfinished)])
            path.with_suffix(".command.json").write_text(json.dumps(command))
            unfinished.rename(path)
        report, command = json.loads(path.read_text()), json.loads(path.with_suffix(".command.json").read_text())
        other = path.with_suffix(".peer.json")
        theirs = json.loads(other.read_text())["points"] if other.exists() else peer(o, kind, command, path, other)
        ours, one = points_of(report), report["runs"][0] if "runs" in report else report
        difference = "" if theirs is None else f"{ours - theirs:+.1f}"
        worst = worst if theirs is None else min(worst, ours - theirs)
        seconds = one.get("train_seconds", one.get("seconds", 0))
        rows.append(f"| {name} | {ours:.1f} | {'' if theirs is None else f'{theirs:.1f}'} | {difference} | "
                    f"{report.get('lr', 0.001):.2g} | {one.get('updates', 0)} | {seconds:.0f} |")
    verdict = f"The worst is {worst:+.1f} points; the bar is -{LIMIT}." if worst < math.inf else "There was no peer."
    head = ("# Defaults\n\nWhat programs learn with nothing but data, beside a plain program in PyTorch with as many samples "
            "and its field's\nusual recipe. Points are right answers in %; of texts -100 times the loss on text that was held "
            "out, so that a point\nis 1 % of the perplexity.")
    return f"{head}\n\n" + "\n".join(rows) + f"\n\n{verdict}"
