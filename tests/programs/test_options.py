#!/usr/bin/env python3
"""Tests values of options that nobody can mean, what messages say about options, and machines that lack something.
Usage: test_options.py FOLDER_OF_THE_PROGRAMS [NAME_OF_A_TEST...]"""

import json
import os
import re
import resource
import signal
import subprocess
import time

from program_data import EXAMPLES, FAST, RESNET, expect, run, run_tests, start

MNIST = ("mnist", "--runs", "batch", "--images", "200", "--accumulate", "100", "--epochs", "1", *FAST)
BERT = ("bert", "--text", "text.txt", "--vocab", "vocab.txt", "--seq", "16", *FAST)
LM = ("lm", "train", "--data", "text.txt", "--seq", "16", "--vocab-size", "300", *FAST)


def test_values(folder):
    """A value is what was typed, or an error that names the option."""
    for program, option, values in (
            (RESNET, "--batch", ("0", "-1", "99999999999999999999", "4294967296000", "many", "1.5", "0x10", "4x", "")),
            (RESNET, "--epochs", ("0", "-3", "9223372036854775808")), (RESNET, "--steps", ("0", "99999999999")),
            (RESNET, "--image", ("0",)), (RESNET, "--seed", ("-1", "18446744073709551616", "")),
            (RESNET, "--accumulate", ("-1", "0", "4294967297")), (RESNET, "--reference-batch", ("0",)),
            (RESNET, "--lr", ("nan", "inf", "1e999", "fast", "")), (RESNET, "--weight-decay", ("nan", "-inf")),
            (RESNET, "--resume", ("",)), (RESNET, "--save", ("",)), (RESNET, "--report", ("",)), (RESNET, "--data", ("",)),
            (MNIST, "--images", ("-1", "99999999999")), (BERT, "--save", ("",)), (BERT, "--seq", ("99999999999999999999",)),
            (LM, "--seq", ("-1",)), (LM, "--steps", ("-1",)), (LM, "--ema", ("nan",))):
        for value in values:
            _, errors = run(folder, *program, f"{option}={value}" if value else option, *([] if value else [""]), status=1)
            expect(option in errors and "terminate" not in errors, "a wrong value", program[0], option, value, errors)
    # Paths where nothing can be written are refused before the first step.
    for option in ("--save", "--report"):
        out, errors = run(folder, *RESNET, f"{option}=/proc/no/file", status=1)
        expect(f"{option}: [write]" in errors and "step" not in out, "a path that cannot be written", option, out, errors)
    # Zeros in front do not make a number octal.
    out, _ = run(folder, *RESNET[:-6], *FAST, "--batch", "010", "--steps", "+1")
    expect("1 steps of 10 images" in out, "ten", out)


def test_spoken_options(folder):
    """Messages speak of options that the program has."""
    small = ("--memory-limit", "4KiB")
    cases = [(*MNIST, *small), ("mnist", "--plan", "--batch", "64", *small), (*RESNET, "--steps", "1", *small),
             (*RESNET, "--steps", "2", "--accumulate", "2", "--exact-batch-norm", *small),
             (*BERT, "--steps", "1", *small), (*LM, "--steps", "1", "--save", "x.gguf", *small),
             (*MNIST[:-1], "f16", "--loss-scale", "fixed:1e30"), ("lm", "generate", "x", "--model", "m", "--device", "dry"),
             (*RESNET, "--device", "dry"), (*LM, "--epochs", "0", "--steps", "0")]
    run(folder, *BERT, "--batch", "4", "--steps", "2", "--save", "model")
    cases.append(("bert", "fill-mask", "the [MASK] is", "--model", "model", *FAST, *small))
    for case in cases:
        _, errors = run(folder, *case, status=1)
        words = [case[0]] + [w for w in case[1:2] if not w.startswith("-")]
        options, _ = run(folder, *words, "--help")
        spoken = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", errors)) - {"--help"}
        known = set(re.findall(r"--[a-z][a-z0-9-]+", options))
        expect(spoken <= known, "options that do not exist", case, spoken - known, errors)
    # Advice does not name what another option forbids.
    _, errors = run(folder, *cases[3], status=1)
    expect("--memory-budget" not in errors and "--accumulate" not in errors, "advice against --exact-batch-norm", errors)


def test_rates(folder):
    """Rates count what was read, which may be less than --batch."""
    for program, unit in ((RESNET[:-6], "images_per_second"), (RESNET, "images_per_second")):
        for batch, images in (("1000000", 20), ("16", 16)):
            run(folder, *program[:5], *FAST, "--batch", batch, "--epochs", "2", "--report", "report.json")
            report = json.loads((folder / "report.json").read_text())
            expect(abs(report[unit] * report["train_seconds"] - 2 * images) < 0.01, "images", program, batch, report[unit])
    out, _ = run(folder, *BERT, "--batch", "1000000", "--steps", "1", "--save", "model")
    text = re.search(r"steps of (\d+), of (\d+) sequences", out)
    expect(text and text[1] == text[2], "the batch that was read", out)
    seconds, rate = re.search(r"1 steps in ([\d.]+) s, ([\d.]+) tokens/s", out).groups()
    expect(float(rate) * (float(seconds) + 0.05) < 16 * int(text[2]) * 3, "tokens", out)


def test_scaled_rates(folder):
    """A learning rate that is scaled by one is the one that was given, and resumes as it."""
    for first, then in ((("--lr", "0.1"), ("--lr", "0.1", "--scale-lr", "linear", "--reference-batch", "8")),
                        (("--lr", "0.3"), ("--lr", "0.1", "--scale-lr", "linear", "--reference-batch", "3")),
                        (("--lr", "0.1", "--scale-lr", "sqrt", "--reference-batch", "8"), ("--lr", "0.1"))):
        batch = "9" if "0.3" in first else "8"
        command = (*RESNET[:5], *FAST, "--batch", batch, "--resume", "kept")
        run(folder, *command, "--steps", "1", *first)
        run(folder, *command, "--steps", "2", *then)
        run(folder, *command, "--steps", "2", *first, "--restart")


def test_lost_terminal(folder):
    """A run whose terminal goes writes a snapshot first, as for SIGTERM."""
    child = start(folder, *RESNET, "--steps", "100000", "--resume", "kept", "--quiet")
    while not (folder / "kept/lock").exists():
        time.sleep(0.01)
    caught = 1 << (signal.SIGHUP - 1)
    while not int(re.search(r"SigCgt:\s*(\w+)", open(f"/proc/{child.pid}/status").read())[1], 16) & caught:
        time.sleep(0.01)
    child.send_signal(signal.SIGHUP)
    _, errors = child.communicate(timeout=60)
    expect(child.returncode == 128 + signal.SIGHUP and "the terminal is gone after step " in errors, "its end",
           child.returncode, errors)
    expect(list((folder / "kept").glob("step-*")), "no snapshot", errors)


def test_limits(folder):
    """A limit of the system is named: for files, for memory, for threads."""
    def limited(which, most):
        return lambda: resource.setrlimit(which, (most, most))
    for command, hint in (((*RESNET, "--steps", "1", "--save", "net"), "ulimit -f"),
                          ((*RESNET, "--steps", "2", "--resume", "kept", "--snapshot-every", "1"), "ulimit -f")):
        _, errors = run(folder, *command, "--quiet", status=1, preexec_fn=limited(resource.RLIMIT_FSIZE, 50000))
        expect(hint in errors and "File too large" in errors, "a size of files", errors)
    # Drivers and oneDNN may crash without memory, which nobody can help; what Rewind says names the limit.
    for size in range(110, 400, 20):
        child = start(folder, *RESNET, "--steps", "1", "--quiet", preexec_fn=limited(resource.RLIMIT_AS, size << 20))
        _, errors = child.communicate(timeout=120)
        expect("Resource temporarily" not in errors and "terminate" not in errors, "no reason", size, errors)


def test_memory_that_is_not_there(folder):
    """One number for memory that is more than the process may have is refused before a step is taken."""
    (folder / "large.json").write_text(json.dumps({
        "model_type": "qwen3", "vocab_size": 1, "hidden_size": 1024, "intermediate_size": 2048, "num_hidden_layers": 4,
        "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 64,
        "tie_word_embeddings": True}))
    most = 700 << 20
    out, errors = run(folder, "lm", "train", "--config", "large.json", "--vocab-size", "300", *FAST, "--data", "text.txt", "--seq",
                      "32", "--steps", "1", "--memory", "8GiB", "--save", "new", status=1,
                      preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (most, most)))
    expect("[memory] no way to take this update fits in" in errors and "The least is" in errors and "step" not in out and
           not (folder / "new").exists(), "a refusal", out, errors)


def test_no_home(folder):
    """Data that a program draws for itself needs no folder of the user's."""
    (folder / "file").write_text("")
    kept = {k: v for k, v in os.environ.items() if k not in ("REWIND_CACHE", "XDG_CACHE_HOME", "HOME")}
    (folder / "temporary").mkdir()
    for home in ({}, {"HOME": "/proc/nothing"}, {"HOME": str(folder / "file")}, {"REWIND_CACHE": "/dev/null"}):
        out, errors = run(folder, *MNIST, env={**kept, **home, "TMPDIR": str(folder / "temporary")})
        expect("test accuracy" in out and "warning: the synthetic data of this run are not kept for later ones" in errors, "training", home, out, errors)
        expect(not list((folder / "temporary").iterdir()), "the digits stay", home)


def test_ranks_without_mpi(folder):
    """mpirun of another library than the build's, or of none, is an error that says so."""
    for program in (MNIST, RESNET, BERT, LM, ("mnist", "--help")):
        child = start(folder, *program, env={**os.environ, "PMI_SIZE": "2", "PMI_RANK": "0"})
        _, errors = child.communicate(timeout=60)
        expect(child.returncode == 1 and "error: [mpi] " in errors and "terminate" not in errors, "ranks", program,
               child.returncode, errors)
    # The same for errors before a program reads its options, and for programs to learn from.
    learn = EXAMPLES.parent / "examples/linear_regression"
    if learn.exists():
        result = subprocess.run([learn, "nothing"], capture_output=True, text=True)
        expect(result.returncode == 1 and result.stderr.startswith("error: [") and "terminate" not in result.stderr,
               "an example", result)


run_tests(globals(), "values are what was typed, and what is missing is named")
