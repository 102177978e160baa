#!/usr/bin/env python3
"""Tests the example programs with photographs, pairs of pictures, and recordings of their own.
Usage: test_inputs.py FOLDER_OF_THE_PROGRAMS [NAME_OF_A_TEST...]"""

import json
import math
import os
import random
import shutil

from program_data import FAST, RESNET, WORDS, expect, run, run_tests, snapshots, write_photos, write_shapes, write_speech, write_wav


def test_photos(folder):
    """Trains a model on a folder of photographs, saves it with their classes, and classifies with it."""
    write_photos(folder / "photos")
    net = ("--data", "photos", "--model", "resnet8", "--image", "16", *FAST)
    train = ("resnet", *net, "--batch", "4", "--lr", "0.05")
    out, _ = run(folder, *train, "--steps", "24", "--save", "net", "--report", "net.json")
    report = json.loads((folder / "net.json").read_text())
    expect(report["classes"] == ["night", "sunset"], "classes", report)
    expect((report["train_images"], report["test_images"]) == (16, 4), "split", report)
    expect(report["device"]["memory"]["peak"] == report["device"]["predicted_peak"], "peak", report)
    expect("test accuracy 100.00 % of 4 images" in out, "what is so easy is learnt", out)

    # The file has the kind of model, its size and its classes.
    out, _ = run(folder, "resnet", "--load", "net", "--predict", "photos/sunset/3.png", "photos/night/1.png",
                 "--report", "seen.json", *FAST)
    lines = out.splitlines()
    expect(lines[0] == "photos/sunset/3.png" and lines[1].endswith("%  sunset") and lines[2].endswith("%  night"), out)
    expect(lines[4] == "photos/night/1.png" and lines[5].endswith("%  night"), out)
    seen = json.loads((folder / "seen.json").read_text())["photographs"]
    expect(abs(sum(c["probability"] for c in seen[0]["classes"]) - 1) < 1e-6, seen)
    out, _ = run(folder, "resnet", "--data", "photos", "--load", "net", "--eval", *FAST)
    expect("test accuracy 100.00 % of 4 images" in out, "evaluation alone", out)

    # The same seed gives the same weights, in one go or in two.
    twice = (*train, "--steps", "6", "--save", "again")
    run(folder, *twice)
    whole = (folder / "again").read_bytes()
    run(folder, *twice, "--resume", "kept", "--snapshot-every", "2")
    snapshots(folder)[-1].unlink()
    out, _ = run(folder, *twice, "--resume", "kept", "--snapshot-every", "2")
    expect("resuming after step" in out and (folder / "again").read_bytes() == whole, "not resumed", out)

    # Other classes, and files that are no photographs.
    (folder / "photos/night").rename(folder / "photos/fog")
    _, errors = run(folder, *train, "--steps", "1", "--load", "net", status=1)
    expect("2 classes (night, sunset) and 2 classes (fog, sunset)" in errors, "other classes", errors)
    whole_photo = (folder / "photos/fog/2.png").read_bytes()
    (folder / "photos/fog/2.png").write_bytes(whole_photo[:200])
    (folder / "photos/fog/4.png").write_bytes(b"GIF89a")
    (folder / "photos/sunset/7.bmp").write_bytes(b"")
    _, errors = run(folder, *train, "--steps", "1", "--strict", status=1)
    expect("photos/fog/4.png' must be a PNG" in errors, "a bad photograph", errors)
    out, errors = run(folder, *train, "--steps", "10", "--report", "net.json")
    report = json.loads((folder / "net.json").read_text())
    expect(report["train_images"] + report["test_images"] == 19, "one less by its header", report)
    expect("2 classes: fog (9), sunset (10); " in out, "the classes", out)
    lines = errors.splitlines()
    expect("'photos': 1 .bmp file is not read" in lines[0], "another kind of file", errors)
    expect("left out: " in lines[1] and "fog/4.png' must be a PNG" in lines[1], "no photograph", errors)
    expect("fog/2.png' must be a whole PNG" in errors and "2 photographs could not be read and were left out" in errors,
           "damage behind the header", errors)
    _, errors = run(folder, "resnet", "--load", "net", "--predict", "photos/fog/2.png", *FAST, status=1)
    expect("fog/2.png" in errors, "a bad photograph", errors)

    # The user's own split, and too few classes.
    write_photos(folder / "split/train", each=4)
    write_photos(folder / "split/val", each=2)
    out, _ = run(folder, "resnet", "--data", "split", *net[2:], "--steps", "1", "--batch", "4")
    expect("of 4 images" in out, "val", out)
    _, errors = run(folder, "resnet", "--data", "split/train/night", *net[2:], status=1)
    expect("must hold folders of 2 classes or more, got 0" in errors, "no classes", errors)
    _, errors = run(folder, *RESNET, "--image", "64", status=1)
    expect("--image must be 32 for CIFAR-10" in errors, "CIFAR-10 of another size", errors)


def test_few_photographs(folder):
    """Two shapes are told apart from a few dozen photographs by the defaults: size, rate and number of passes."""
    write_shapes(folder / "shapes/train", 24, 1)
    write_shapes(folder / "shapes/val", 20, 2)
    out, _ = run(folder, "resnet", "--data", "shapes", "--model", "resnet8", "--batch", "8", *FAST)
    expect("2 classes: circles (44), squares (44); 48 photographs to train with and 40 to test with, scaled to 32 x 32"
           in out, "the size", out)
    expect(float(out.split("test accuracy ")[1].split()[0]) >= 95, "what is so easy is learnt", out)


def test_pairs(folder):
    """Trains a classifier of pairs with labels that are words, and classifies texts with it."""
    run(folder, "bert", "--text", "text.txt", "--vocab", "vocab.txt", "--seq", "16", "--batch", "4", "--steps",
        "2", "--save", "model", *FAST)
    draw = random.Random(2)
    sentence = lambda: " ".join(draw.choices(WORDS, k=draw.randrange(3, 9)))
    (folder / "pairs").mkdir()
    for name, rows in (("train", 24), ("dev_matched", 9)):
        rows = [f"{i}\t{sentence()}\t{sentence()}\tx\t{('neutral', 'yes', 'no')[i % 3]}" for i in range(rows)]
        header = "index\tsentence1\tsentence2\tlabel1\tgold_label"
        (folder / "pairs" / f"{name}.tsv").write_text("\n".join([header, *rows]) + "\n")
    tune = ("bert", "finetune", "--task", "pairs", "--model", "model", "--batch", "4", "--seq", "24", *FAST)
    out, _ = run(folder, *tune, "--save", "tuned", "--report", "tuned.json")
    expect("classifier of 3 classes" in out and "24 pairs" in out, "pairs", out)
    report = json.loads((folder / "tuned.json").read_text())
    expect(report["classes"] == ["neutral", "no", "yes"], "classes", report)
    expect(report["device"]["memory"]["peak"] == report["device"]["predicted_peak"], "peak", report)
    config = json.loads((folder / "tuned/config.json").read_text())
    expect(config["id2label"] == {"0": "neutral", "1": "no", "2": "yes"}, "id2label", config)

    ask = ("bert", "classify", "--model", "tuned", *FAST)
    one, _ = run(folder, *ask, "the model learns", "--text-pair", "every word")
    lines = one.splitlines()
    expect(lines[:2] == ["the model learns", "every word"] and len(lines) == 5, one)
    expect({line.split("%")[1].strip() for line in lines[2:]} == {"neutral", "no", "yes"}, one)
    expect(abs(sum(float(line.split("%")[0]) for line in lines[2:]) - 100) < 0.2, one)
    # The result is the same from a file, among others and in batches.
    (folder / "asked.txt").write_text("it is a word\tthe text of it and more\nthe model learns\tevery word\n")
    many, _ = run(folder, *ask, "--file", "asked.txt", "--batch", "1")
    expect(many.split("\n\n")[1] == one, "from a file", many, one)
    swapped, _ = run(folder, *ask, "every word", "--text-pair", "the model learns")
    expect(swapped.splitlines()[2:] != lines[2:], "the order of the texts", swapped)

    _, errors = run(folder, *ask, "one", "two", "--text-pair", "three", status=1)
    expect("got 2 texts and 1 second ones" in errors, "one second text", errors)
    _, errors = run(folder, *ask, status=1)
    expect("there must be a text" in errors, "no text", errors)
    _, errors = run(folder, "bert", "classify", "one", "--model", "model", *FAST, status=1)
    expect("must hold a classifier" in errors, "no classifier", errors)
    with open(folder / "pairs/train.tsv", "a") as rows:
        rows.write("24\tonly one sentence\tyes\n")
    _, errors = run(folder, *tune, status=1)
    expect("train.tsv:26 must have 5 columns as the header has, got 3" in errors, "a bad row", errors)


def test_speech(folder):
    """Trains a recogniser on folders of speech, resumes it, and recognises with it."""
    write_speech(folder / "speech")
    net = ("asr", "--data", "speech", "--tokens", "word", "--hidden", "24", "--channels", "16", *FAST)
    train = (*net, "--batch", "4", "--lr", "0.02", "--seed", "5")
    out, _ = run(folder, *train, "--steps", "160", "--save", "net", "--report", "net.json")
    report = json.loads((folder / "net.json").read_text())
    expect(report["units"] == ["high", "low", "middle"], "units", report)
    expect(len(report["train_voices"]) == 2 and len(report["test_voices"]) == 1, "voices", report)
    expect(not set(report["train_voices"]) & set(report["test_voices"]), "held out", report)
    expect(report["device"]["memory"]["peak"] == report["device"]["predicted_peak"], "peak", report)
    # The accuracy on an unknown voice depends on the seed and on the driver's sums; guessing gets two thirds wrong.
    expect(report["word_error_rate"] <= 0.4, "what is so easy is learnt", out)

    # Files describe the model; sounds of any rate are recognised, in chunks of any length.
    voice = report["test_voices"][0]
    lines = (folder / f"speech/{voice}/1/{voice}-1.trans.txt").read_text().splitlines()
    files = [f"speech/{voice}/1/{line.split()[0]}.wav" for line in lines]
    heard = [run(folder, "asr", "recognise", *files, "--model", "net", "--chunk", chunk, *FAST)[0].splitlines()
             for chunk in ("0.04", "0.32", "60")]
    said = [f"{file}: {line.split(' ', 1)[1].lower()}" for file, line in zip(files, lines)]
    expect(heard[0] == heard[1] == heard[2], "chunks of other lengths", heard)
    expect(2 * sum(h == s for h, s in zip(heard[0], said)) >= len(said), "recognised", heard, said)
    draw = random.Random(6)
    tone = [0.4 * math.sin(2 * math.pi * 918 * t / 44100) for t in range(7700)] + [0.0] * 4400
    write_wav(folder / "fast.wav", [x + draw.gauss(0, 0.003) for x in tone], 44100)
    heard, _ = run(folder, "asr", "recognise", "fast.wav", "--model", "net", *FAST)
    expect("middle" in heard, "another rate", heard)
    out, _ = run(folder, *net, "--load", "net", "--eval", "--batch", "3")
    rate = f"word error rate {100 * report['word_error_rate']:.2f} %"
    expect(rate in out, "evaluation alone", out)
    out, _ = run(folder, *net, "--load", "net", "--eval", "--beam", "4")
    expect(0 <= float(out.split("word error rate ")[1].split()[0]) <= 40, "with a beam", out)

    # The same seed gives the same weights, in one go or in two; a transducer, with letters.
    twice = ("asr", "--data", "speech", "--hidden", "16", "--batch", "4", *FAST, "--loss", "rnnt", "--steps", "6",
             "--save", "again")
    run(folder, *twice)
    whole = (folder / "again").read_bytes()
    run(folder, *twice, "--resume", "kept", "--snapshot-every", "2")
    snapshots(folder)[-1].unlink()
    out, _ = run(folder, *twice, "--resume", "kept", "--snapshot-every", "2")
    expect("resuming after step" in out and (folder / "again").read_bytes() == whole, "not resumed", out)
    shutil.rmtree(folder / "kept")
    run(folder, "asr", "recognise", files[0], "--model", "again", *FAST)

    # Wrong input: one error each, which names it.
    def fault(*command):
        _, errors = run(folder, *command, status=1)
        expect(errors.count("error: ") == 1, "one error", errors)
        return errors

    (folder / "text.wav").write_text("no sound")
    errors = fault("asr", "recognise", "text.wav", "--model", "net", *FAST)
    expect("'text.wav' must be a sound file" in errors, "no sound", errors)
    errors = fault("asr", "recognise", files[0], "--model", "missing", *FAST)
    expect("there must be a recogniser in 'missing'" in errors, "no model", errors)
    errors = fault("asr", "recognise", files[0], "--model", files[0], *FAST)
    expect(files[0] in errors, "no model", errors)
    errors = fault(*net, "--beam", "4", "--loss", "rnnt")
    expect("1 with --loss rnnt" in errors, "a beam", errors)
    errors = fault("asr", "--data", "nowhere", *FAST)
    expect("'nowhere' must be a folder of speech" in errors, "no data", errors)
    broken = folder / f"speech/{voice}/1"
    (broken / f"{voice}-1.trans.txt").write_text(f"{voice}-1-0 {'LOW ' * 40}\n")
    errors = fault(*train, "--steps", "1")
    expect(f"{voice}-1-0.wav' must be as long as its transcript needs" in errors, "too many words", errors)
    (broken / f"{voice}-1.trans.txt").write_text(f"{voice}-1-0 UNKNOWN\n")
    errors = fault(*net, "--load", "net", "--eval")
    expect('"unknown" must be one of 3 known words' in errors, "an unknown word", errors)
    empty = {**os.environ, "PATH": "/nonexistent"}
    _, errors = run(folder, "asr", "--strings", "3", *FAST, status=1, env=empty)
    expect("espeak-ng must be there" in errors and "--data DIR" in errors, "no synthesiser", errors)


run_tests(globals(), "programs train on their users' own files")
