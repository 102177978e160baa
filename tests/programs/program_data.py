"""The common part of the tests of programs: running them, and small data in every format that they read."""

import math
import os
import random
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

EXAMPLES = Path(sys.argv[1]).resolve()
WORDS = "the a model learns from text and every word of it is one of these".split()
FAST = ("--device", "cpu", "--dtype", "f32")
RESNET = ("resnet", "--data", "cifar", "--model", "resnet8", "--batch", "4", *FAST)


def expect(condition, what, *details):
    if not condition:
        sys.exit(f"{what}:\n" + "\n".join(str(d) for d in details))


def start(folder, program, *options, **more):
    return subprocess.Popen([EXAMPLES / program, *options], cwd=folder, text=True, errors="replace",
                            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more})


def run(folder, *command, status=0, **more):
    """(standard output, standard error)"""
    child = start(folder, *command, **more)
    out, errors = child.communicate(timeout=300)
    expect(child.returncode == status, f"exit status, not {status}", command, child.returncode, out, errors)
    return out, errors


def write_data(folder):
    draw = random.Random(1)
    for name in ("cifar", "task"):
        (folder / name).mkdir()
    for name in [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]:
        images = [bytes([draw.randrange(10)]) + draw.randbytes(3072) for _ in range(4)]
        (folder / "cifar" / f"{name}.bin").write_bytes(b"".join(images))
    for name in ("train", "dev"):
        rows = [f"{' '.join(draw.choices(WORDS, k=draw.randrange(3, 12)))}\t{i % 2}" for i in range(20)]
        (folder / "task" / f"{name}.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    (folder / "text.txt").write_text("\n".join(" ".join(draw.choices(WORDS, k=30)) + "." for _ in range(60)))
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "."]
    (folder / "vocab.txt").write_text("\n".join([*specials, *sorted(set(WORDS))]) + "\n")


def png(height, width, colour):
    """Returns a picture of one colour with a little noise."""
    draw = random.Random(repr(colour))
    rows = b"".join(b"\0" + bytes(min(255, max(0, c + draw.randrange(-20, 20))) for _ in range(width) for c in colour)
                    for _ in range(height))
    return png_file(height, width, rows)


def png_file(height, width, rows, colours=2):
    """Returns the file of rows of RGB, or with `colours` 0 of grey, each of which begins with its filter."""
    chunks = ((b"IHDR", struct.pack(">2I5B", width, height, 8, colours, 0, 0, 0)), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks)


def write_photos(folder, classes=(("night", (20, 20, 60)), ("sunset", (230, 90, 20))), each=10):
    for name, colour in classes:
        (folder / name).mkdir(parents=True)
        for i in range(each):
            (folder / name / f"{i}.png").write_bytes(png(40 + i, 60, tuple(c + i for c in colour)))


def write_shapes(folder, each, seed):
    """Writes circles and squares of bright colours on dark ground, at any place, of 24 to 40 pixels."""
    draw = random.Random(seed)
    for name in ("circles", "squares"):
        (folder / name).mkdir(parents=True)
        for i in range(each):
            height, width = draw.randrange(24, 41), draw.randrange(24, 41)
            radius = draw.uniform(0.28, 0.38) * min(height, width)
            y, x = draw.uniform(radius, height - radius), draw.uniform(radius, width - radius)
            ground, ink = [draw.randrange(60) for _ in "rgb"], [draw.randrange(60, 256) for _ in "rgb"]
            ink[draw.randrange(3)] = 255
            rows = []
            for row in range(height):
                line = b"\0"
                for column in range(width):
                    v, u = abs(row + 0.5 - y), abs(column + 0.5 - x)
                    inside = (math.hypot(u, v) if name == "circles" else max(u, v)) < radius
                    line += bytes(ink if inside else ground)
                rows.append(line)
            (folder / name / f"{i}.png").write_bytes(png_file(height, width, b"".join(rows)))


def write_wav(path, samples, rate=16000):
    data = b"".join(struct.pack("<h", round(32767 * max(-1, min(1, x)))) for x in samples)
    path.write_bytes(struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + len(data), b"WAVE", b"fmt ", 16, 1, 1, rate,
                                 2 * rate, 2, 16, b"data", len(data)) + data)


TONES = {"low": 300, "middle": 900, "high": 2700}  # what is said, in Hz


def write_speech(root, speakers=("s1", "s2", "s3"), each=8, longest=3):
    """Writes LibriSpeech's folders of words that are tones, each speaker with another loudness and pace."""
    draw = random.Random(5)
    for k, speaker in enumerate(speakers):
        folder = root / speaker / "1"
        folder.mkdir(parents=True)
        lines = []
        for i in range(each):
            words = draw.choices(list(TONES), k=1 + (i % longest))
            samples = []
            for word in words:
                turn = 2 * math.pi * TONES[word] * (1 + 0.02 * k) / 16000
                samples += [0.2 * (k + 1) * math.sin(turn * t) for t in range(2400 + 400 * k)] + [0.0] * 1600
            write_wav(folder / f"{speaker}-1-{i}.wav", [x + draw.gauss(0, 0.003) for x in samples])
            lines.append(f"{speaker}-1-{i} {' '.join(words).upper()}\n")
        (folder / f"{speaker}-1.trans.txt").write_text("".join(lines))


def snapshots(folder):
    return sorted((folder / "kept").glob("step-*"))


def run_tests(tests, verdict):
    """Runs the functions named test_... (those that the command line names, if it names some), each in a folder of its own."""
    for name, test in list(tests.items()):
        if name.startswith("test_") and (len(sys.argv) == 2 or name in sys.argv):
            with tempfile.TemporaryDirectory() as path:
                os.environ["REWIND_CACHE"] = path + "/cache"
                write_data(Path(path))
                test(Path(path))
    print(verdict)
