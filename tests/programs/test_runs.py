#!/usr/bin/env python3
"""Tests what the training programs promise for a run as a whole: it is resumed only with its own settings and data, its end
says what was learnt, and a killed run leaves nothing behind. Usage: test_runs.py FOLDER_OF_THE_PROGRAMS [NAME_OF_A_TEST...]"""

import json
import shutil

from program_data import FAST, RESNET, expect, run, run_tests, write_photos, write_speech

ASR = ("asr", "--data", "speech", "--tokens", "word", "--hidden", "8", "--channels", "8", "--batch", "4", "--steps", "4",
       "--lr", "0.01", "--save", "net", *FAST)
BERT = ("bert", "--text", "text.txt", "--vocab", "vocab.txt", "--seq", "16", "--batch", "4", "--steps", "4",
        "--accumulate", "1", "--save", "model", *FAST)
PHOTOS = ("resnet", "--data", "photos", "--model", "resnet8", "--image", "16", "--batch", "4", "--steps", "4", *FAST)
KEPT = ("--resume", "kept", "--snapshot-every", "2", "--quiet")


def changed(command, *options):
    """Returns the command with these options in place of its own."""
    command = list(command)
    for option, value in zip(options[::2], options[1::2]):
        if option in command:
            command[command.index(option) + 1] = value
        else:
            command += [option, value]
    return command


def refuse(folder, command, what, before, now):
    """Checks that the run is not resumed, and that one line says what was given, what the run has and what to do."""
    _, errors = run(folder, *command, *KEPT, status=1)
    expect("error: [resume] 'kept' is of another run: " in errors and errors.count("error: ") == 1, "the error", errors)
    expect(f"{what} was {before} there and is {now} now" in errors, "what differs", what, before, now, errors)
    expect("use another folder, or --restart" in errors, "what to do", errors)


def accept(folder, command, note=None):
    out, errors = run(folder, *[o for o in command if o != "--quiet"], *[o for o in KEPT if o != "--quiet"])
    expect("resuming after step" in out, "it goes on", command, out, errors)
    expect((note in errors) if note else "note: 'kept'" not in errors, "what is said", note, errors)


def test_other_settings(folder):
    """Every option is a setting of the run, except for a short list (docs/resuming.md)."""
    write_speech(folder / "speech")
    run(folder, *ASR, *KEPT)
    for option, before, now in (("--loss-scale", "not given", "fixed:8"), ("--overflow", "window", "micro-batch"),
                                ("--test-share", "0.1", "0.4"), ("--hidden", "8", "12"), ("--weight-decay", "0.01", "0.0100001"),
                                ("--seed", "1", "2"), ("--lr", "0.01", "0.02"), ("--accumulate", "1", "2")):
        refuse(folder, changed(ASR, option, now), option, before, now)
    _, errors = run(folder, *ASR, *KEPT, "--seed", "2", "--overflow", "micro-batch", status=1)
    expect("--overflow was window" in errors and "--seed was 1" in errors, "all that differ are named", errors)
    (folder / "elsewhere").symlink_to("speech")
    accept(folder, changed(ASR, "--data", "elsewhere", "--save", "other", "--report", "r.json", "--checkpoint", "block",
                           "--memory-limit", "1GiB", "--check-numerics", "1", "--beam", "2", "--batch", "04"))
    accept(folder, changed(ASR, "--steps", "6"))
    other = changed(ASR, "--steps", "8", "--dtype", "bf16")
    refuse(folder, other, "--dtype", "f32", "bf16")
    _, errors = run(folder, *other, *KEPT, status=1)
    expect("(--change-dtype allows that)" in errors, "the option is named", errors)
    accept(folder, (*other, "--change-dtype"),
           "note: 'kept' is resumed with --dtype bf16 instead of f32: the results will not be bit-equal to those of an uninterrupted run")
    shutil.rmtree(folder / "kept")

    run(folder, *BERT, *KEPT)
    for option, before, now in (("--fused-update", "0", "1"), ("--overflow", "window", "micro-batch"),
                                ("--optimizer", "adamw", "adamw-8bit"), ("--ema", "0", "0.5")):
        refuse(folder, changed(BERT, option, now), option, before, now)
    refuse(folder, [w for w in BERT if w not in ("--vocab", "vocab.txt")], "--vocab", "vocab.txt", "not given")
    refuse(folder, (*BERT, "--whole-words"), "--whole-words", "false", "true")
    accept(folder, (*BERT, "--offload", "states", "--checkpoint", "none"))
    accept(folder, (*BERT, "--offload", "states+updates"), "note: 'kept' is resumed with --offload states+updates instead of ")
    shutil.rmtree(folder / "kept")

    # The settings of another program.
    run(folder, *RESNET, "--steps", "2", *KEPT)
    _, errors = run(folder, *BERT, *KEPT, status=1)
    expect("'kept' is of another program: resnet, not bert;" in errors, "another program", errors)


def test_other_data(folder):
    """Data of the same names and sizes are other data if their contents differ."""
    def edited(command, path, before, after):
        run(folder, *command, *KEPT)
        accept(folder, command)
        content = (folder / path).read_bytes()
        expect(before in content and len(before) == len(after), "a change", path)
        (folder / path).write_bytes(content.replace(before, after))
        _, errors = run(folder, *command, *KEPT, status=1)
        expect("is of another run: the data was " in errors, "other data", command, errors)
        shutil.rmtree(folder / "kept")

    edited(BERT, "text.txt", b"learns", b"word a")
    tune = ("bert", "finetune", "--task", "task", "--model", "model", "--batch", "4", "--steps", "4", *FAST)
    edited(tune, "task/train.tsv", b"model", b"learn")
    edited(tune, "task/dev.tsv", b"model", b"learn")
    image = (folder / "cifar/data_batch_3.bin").read_bytes()[4000:4040]
    edited((*RESNET, "--steps", "4"), "cifar/data_batch_3.bin", image, image[::-1])
    image = (folder / "cifar/test_batch.bin").read_bytes()[4000:4040]
    edited((*RESNET, "--steps", "4"), "cifar/test_batch.bin", image, image[::-1])
    write_speech(folder / "speech")
    edited(ASR, "speech/s2/1/s2-1.trans.txt", b"LOW", b"WOL")
    write_photos(folder / "photos")
    run(folder, *PHOTOS, *KEPT)
    first, second = (folder / "photos/night/3.png"), (folder / "photos/night/4.png")
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    _, errors = run(folder, *PHOTOS, *KEPT, status=1)
    expect("is of another run: the data was " in errors, "photographs that changed names", errors)
    second.write_bytes(first.read_bytes())
    first.write_bytes(content)
    refuse(folder, (*PHOTOS, "--test-share", "0.4"), "--test-share", "0.2", "0.4")


def test_verdict(folder):
    """A run that made no update has trained nothing, so it fails and saves nothing. Other runs say what they skipped."""
    voided = ("--loss-scale", "fixed:1e30", "--dtype", "f16", "--report", "report.json")
    write_speech(folder / "speech")
    for command, saved in (((*RESNET, "--steps", "4", "--save", "weights"), "weights"), (ASR, "net"), (BERT, "model"),
                           (("mnist", "--runs", "batch", "--images", "200", "--accumulate", "100", "--epochs", "1", *FAST), None)):
        out, errors = run(folder, *changed(command, *voided), status=1)
        expect("error: [train] at least one update must be made, got none: all " in errors and "were skipped" in errors
               and "loss scale 1e+30" in errors, "the verdict", errors)
        expect("test accuracy" not in out and "word error rate" not in out, "nothing is presented as trained", out)
        expect(saved is None or ("nothing is saved" in errors and not (folder / saved).exists()), "nothing is saved", saved)
        expect(saved is None or not (folder / "report.json").exists(), "no report")
        (folder / "report.json").unlink(missing_ok=True)
    out, errors = run(folder, *changed(RESNET, "--steps", "8", "--dtype", "f16", "--loss-scale", "dynamic:1e9:2:0.001"))
    expect("6 updates, 2 skipped because of overflows (25.0 %)" in out, "the share", out)
    expect("warning: 25.0 % of the updates were skipped" in errors, "a large share", errors)
    out, errors = run(folder, *RESNET, "--steps", "8")
    expect("8 updates, 0 skipped" in out and "warning" not in errors, "none", out, errors)


def test_stale_files(folder):
    """The next --save removes the file that a killed one left beside its target; that of a living writer stays."""
    save = (*RESNET, "--steps", "1", "--save", "net.safetensors", "--quiet")
    for name in ("net.safetensors.partial-a1B2c3", "net.safetensors.partial-ZZZZZZ", "other.safetensors.partial-a1B2c3",
                 "net.safetensors.partial-notes"):
        (folder / name).write_bytes(b"half")
    (folder / "net.safetensors.partial-linked").symlink_to("vocab.txt")
    run(folder, *save)
    left = sorted(f.name for f in folder.glob("*.partial-*"))
    expect(left == ["net.safetensors.partial-linked", "net.safetensors.partial-notes", "other.safetensors.partial-a1B2c3"], left)


run_tests(globals(), "runs go on as they were, and say what they did")
