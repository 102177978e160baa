#!/usr/bin/env python3
"""Tests the example programs with outputs that are no plain files, readers that leave, damaged snapshots,
and signals. Usage: test_programs.py FOLDER_OF_THE_PROGRAMS [NAME_OF_A_TEST...]"""

import json
import math
import os
import shutil
import signal
import stat
import struct
import time
from pathlib import Path

from program_data import FAST, RESNET, expect, run, run_tests, snapshots, start


def damage(path):
    data = bytearray(path.read_bytes())
    data[-100] ^= 4
    path.write_bytes(data)


def test_outputs(folder):
    """Pipes get the bytes, links keep their place, the umask holds."""
    train = (*RESNET, "--steps", "2", "--quiet")
    run(folder, *train, "--save", "plain", "--report", "plain.json")
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    # Opening both ends keeps either from waiting; the output fits in a pipe.
    ends = os.open(pipe, os.O_RDWR)
    run(folder, *train, "--report", "pipe")
    expect(json.loads(os.read(ends, 1 << 16))["test_images"] == 4, "the report in the pipe")
    os.close(ends)
    expect(stat.S_ISFIFO(pipe.lstat().st_mode), "the pipe was replaced")
    reader, writer = os.pipe()  # as >(command) of a shell
    run(folder, *train, "--report", f"/dev/fd/{writer}", pass_fds=(writer,))
    os.close(writer)
    expect(json.loads(os.read(reader, 1 << 16))["test_images"] == 4, "the report in /dev/fd")
    os.close(reader)
    out, _ = run(folder, *train, "--report", "/dev/stdout")
    expect("test accuracy" in out and '"test_images": 4' in out, "the report on the screen", out)

    (folder / "there").mkdir()
    (folder / "link").symlink_to("there/model")
    before = os.umask(0o077)
    run(folder, *train, "--save", "link")
    os.umask(before)
    expect((folder / "link").is_symlink(), "the link was replaced")
    expect((folder / "there/model").read_bytes() == (folder / "plain").read_bytes(), "another model")
    expect((folder / "there/model").stat().st_mode & 0o777 == 0o600, "the umask")

    _, errors = run(folder, *train, "--load", "pipe", status=1)
    expect("must be a regular file" in errors, "loading a pipe", errors)


def test_lost_output(folder):
    """A user who stops reading the output still gets the model."""
    train = (*RESNET, "--steps", "20", "--save", "lost", "--report", "lost.json")
    run(folder, *train)
    whole = (folder / "lost").read_bytes()

    def runs(what, status=0, **more):
        for name in ("lost", "lost.json"):
            (folder / name).unlink()
        _, errors = run(folder, *train, status=status, **more)
        expect((folder / "lost").read_bytes() == whole, what, errors)
        expect(json.loads((folder / "lost.json").read_text())["test_images"] == 4, what)
        return errors

    reader, writer = os.pipe()
    os.close(reader)  # as `| head -c 0`
    runs("no reader", stdout=writer)
    runs("no reader at all", stdout=writer, stderr=writer)
    os.close(writer)
    runs("closed", preexec_fn=lambda: os.close(1))
    with open("/dev/full", "wb") as full:
        errors = runs("a full disk", status=1, stdout=full)
        expect("standard output: No space left" in errors, "the full disk", errors)


def test_damage(folder):
    """A damaged snapshot is skipped with a warning; --restart is needed if none is whole."""
    train = (*RESNET, "--resume", "kept", "--snapshot-every", "2", "--steps", "8", "--save", "out")
    run(folder, *train)
    whole = (folder / "out").read_bytes()
    damage(snapshots(folder)[-1])
    out, errors = run(folder, *train)
    expect("resuming after step 6" in out, "the older one", out)
    expect("warning" in errors and "is damaged" in errors and "step-000000000006" in errors, "the warning", errors)
    expect((folder / "out").read_bytes() == whole, "other weights")
    for path in snapshots(folder):
        damage(path)
    _, errors = run(folder, *train, status=1)
    expect("none of the 2 snapshots" in errors and "--restart" in errors, "no start from zero", errors)
    (folder / "out").unlink()
    out, _ = run(folder, *train, "--restart")
    expect("resuming" not in out and (folder / "out").read_bytes() == whole, "a new start", out)
    shutil.rmtree(folder / "kept")


def test_finetune(folder):
    """Fine-tuning that is resumed ends with the weights of an uninterrupted run."""
    run(folder, "bert", "--text", "text.txt", "--vocab", "vocab.txt", "--seq", "16", "--batch", "4", "--steps",
        "2", "--save", "model", *FAST)
    tune = ("bert", "finetune", "--task", "task", "--model", "model", "--batch", "4", "--epochs", "2", "--save",
            "tuned", "--resume", "kept", "--snapshot-every", "3", *FAST)
    run(folder, *tune)
    weights = folder / "tuned/model.safetensors"
    whole = weights.read_bytes()
    older, newest = snapshots(folder)
    newest.unlink()
    weights.unlink()
    out, _ = run(folder, *tune)
    expect("resuming after step 6 " in out and weights.read_bytes() == whole, "not resumed", out)
    _, errors = run(folder, *tune, "--lr", "0.5", status=1)
    expect("is of another run" in errors, "another run", errors)
    shutil.rmtree(folder / "kept")


def test_loss_scale(folder):
    """Tests scalers by name, wrong names, and the options that monitor them."""
    train = (*RESNET, "--steps", "4", "--quiet", "--report", "report.json")
    for name, scale in (("none", 1), ("fixed:64", 64), ("dynamic:32:4:0.5:3", 128), ("tensorflow:8:2", 32)):
        run(folder, *train, "--loss-scale", name)
        expect(json.loads((folder / "report.json").read_text())["loss_scale"] == scale, "the scale", name)
    for command in (RESNET, ("resnet", "--plan"), ("mnist", "--plan"), ("bert", "--plan", "--text", "text.txt"),
                    ("bert", "finetune", "--plan", "--model", "tiny")):
        _, errors = run(folder, *command, "--loss-scale", "dynamic:big", status=1)
        expect("must be none, fixed:N, dynamic[:INITIAL" in errors and "got 'dynamic:big'" in errors, "the forms", errors)
    out, _ = run(folder, *RESNET[:-1], "f16", "--steps", "4", "--loss-scale", "fixed:1e30", "--check-numerics", "1",
                 "--gradient-ranges", status=1)
    expect("first overflow: step 1 (update 1, loss scale 1e+30): gradient of output 0 of " in out
           and "made by the vjp of cross_entropy (op " in out, "the finding", out)
    expect("not finite" in out and "gradients without their loss scale of 1e+30" in out, "the table", out)
    out, _ = run(folder, *train, "--check-numerics", "2")
    expect("2 steps watched" in out and "no overflow was seen" in out, "nothing to find", out)
    out, _ = run(folder, "mnist", "--runs", "batch", "--images", "200", "--accumulate", "100", "--epochs", "1",
                 "--gradient-ranges", *FAST)
    expect("hidden1.weight" in out and "without their loss scale of 1, and" in out, "the table of mnist", out)
    out, _ = run(folder, "bert", "--text", "text.txt", "--vocab", "vocab.txt", "--seq", "16", "--batch", "4", "--steps",
                 "2", "--save", "model", "--check-numerics", "1", *FAST)
    expect("2 steps watched" in out and "no overflow was seen" in out, "bert", out)


def test_loss_of_damaged_weights(folder):
    """An evaluation whose loss is not finite is an error that names the first value, and so is training."""
    run(folder, *RESNET, "--steps", "1", "--save", "net", "--quiet")
    data = bytearray((folder / "net").read_bytes())
    begin = 8 + int.from_bytes(data[:8], "little")
    at = begin + json.loads(data[8:begin])["conv1.weight"]["data_offsets"][0]
    data[at:at + 4] = struct.pack("<f", math.nan)
    (folder / "net").write_bytes(data)
    for options in (("--eval",), ("--steps", "2")):
        out, errors = run(folder, *RESNET, "--load", "net", *options, status=1)
        expect("the loss must be finite, got" in errors and "'conv1.weight', which conv2d (op " in errors
               and "accuracy" not in out, options, out, errors)


def test_learning_rate(folder):
    """--lr scales with the samples of an update; a resumed run keeps its rate."""
    train = (*RESNET, "--steps", "4", "--lr", "0.1", "--report", "report.json")
    for options, rate in ((("--scale-lr", "linear", "--reference-batch", "16", "--accumulate", "2"), 0.05),
                          (("--scale-lr", "sqrt", "--reference-batch", "16"), 0.05),
                          (("--scale-lr", "linear", "--reference-batch", "16", "--accumulate", "2",
                            "--exact-batch-norm"), 0.05), (("--accumulate", "2"), 0.1)):
        out, _ = run(folder, *train, *options)
        found = json.loads((folder / "report.json").read_text())["lr"]
        expect(abs(found - rate) < 1e-6, "the rate", options, found)
        expect(("learning rate 0.05 (0.1 for 16 per update)" in out) == (rate != 0.1), "what is said of it", out)
    kept = (*RESNET, "--resume", "kept", "--snapshot-every", "2")
    run(folder, *kept, "--steps", "4", "--lr", "0.125", "--scale-lr", "linear", "--reference-batch", "2")
    _, errors = run(folder, *kept, "--steps", "6", "--lr", "0.125", status=1)
    expect("is of another run" in errors, "another rate", errors)
    out, _ = run(folder, *kept, "--steps", "6", "--lr", "0.25")  # 0.125 * 4 / 2
    expect("resuming after step 4" in out, "the same rate by other options", out)
    shutil.rmtree(folder / "kept")
    for command in (RESNET, ("bert", "--plan", "--text", "text.txt"), ("bert", "finetune", "--plan", "--model", "tiny"),
                    ("asr", "--plan")):
        _, errors = run(folder, *command, "--scale-lr", "sqrt", status=1)
        expect("--scale-lr sqrt needs --reference-batch" in errors, "the reference", errors)
        _, errors = run(folder, *command, "--scale-lr", "cubic", status=1)
        expect("must be none, linear or sqrt, got 'cubic'" in errors, "the rules", errors)


def test_average(folder):
    """Averages by --ema are evaluated and saved beside the weights, and resumed bit for bit."""
    train = (*RESNET, "--steps", "12", "--accumulate", "2", "--ema", "0.5", "--save", "net.safetensors", "--report",
             "report.json")
    out, _ = run(folder, *train)
    report = json.loads((folder / "report.json").read_text())
    expect([e["epoch"] for e in report["evaluations"]] == [1, 2], "after every epoch of 5 steps", report)
    expect(out.count("test accuracy of the average ") == 3 and "test_ema_accuracy" in report, "at the end, too", out)
    expect(all({"step", "test_accuracy", "test_loss", "test_ema_accuracy", "test_ema_loss"} <= set(e)
               for e in report["evaluations"]), "what is found", report)
    expect(report["device"]["memory"]["peak"] == report["device"]["predicted_peak"], "peak", report)
    files = [folder / "net.safetensors", folder / "net.ema.safetensors"]
    whole = [f.read_bytes() for f in files]
    expect(whole[0] != whole[1], "the average is another one")
    out, _ = run(folder, "resnet", "--data", "cifar", "--load", "net.ema.safetensors", "--eval", "--model", "resnet8",
                 "--batch", "4", *FAST)
    expect(f"test accuracy {100 * report['test_ema_accuracy']:.2f} %" in out, "what was saved", out)
    # Evaluating changes nothing, and snapshots from inside a window keep the average.
    run(folder, *train[:train.index("--ema")], "--save", "plain")
    expect((folder / "plain").read_bytes() == whole[0], "the weights of a run without an average")
    kept = (*train, "--resume", "kept", "--snapshot-every", "3")
    run(folder, *kept)
    first, newest = snapshots(folder)
    newest.unlink()
    for f in files:
        f.unlink()
    out, _ = run(folder, *kept)
    expect("resuming after step" in out and [f.read_bytes() for f in files] == whole, "not resumed", out)
    again = json.loads((folder / "report.json").read_text())
    expect(again["evaluations"] == report["evaluations"], "the evaluations before", again)
    _, errors = run(folder, *[o if o != "0.5" else "0.9" for o in kept], status=1)
    expect("is of another run" in errors, "another decay", errors)
    shutil.rmtree(folder / "kept")
    for command in (RESNET, ("bert", "--plan", "--text", "text.txt"), ("bert", "finetune", "--plan", "--model", "tiny")):
        _, errors = run(folder, *command, "--ema", "1", status=1)
        expect("--ema must be in [0, 1), got 1" in errors, "the range", errors)
    out, _ = run(folder, "mnist", "--runs", "batch", "--images", "200", "--accumulate", "100", "--epochs", "2", "--ema",
                 "0.5", "--report", "report.json", *FAST)
    report = json.loads((folder / "report.json").read_text())["runs"][0]
    expect(out.count(", of the average ") == 2 and len([e["test_ema_loss"] for e in report["history"]]) == 2, "mnist", out)
    expect(report["memory"]["predicted_peak"] == report["peak_bytes"], "peak of mnist", report)
    bert = ("bert", "--text", "text.txt", "--vocab", "vocab.txt", "--seq", "16", "--batch", "4", "--steps", "40", "--save",
            "model", "--ema", "0.9", "--report", "report.json", *FAST)
    out, _ = run(folder, *bert)
    report = json.loads((folder / "report.json").read_text())
    expect("held-out text: loss of the average " in out and "held_out_ema_loss" in report and report["evaluations"],
           "bert", out, report)
    expect((folder / "model/model.ema.safetensors").exists(), "the average of bert")
    out, _ = run(folder, "bert", "finetune", "--task", "task", "--model", "model", "--batch", "4", "--epochs", "2",
                 "--ema", "0.9", "--report", "report.json", *FAST)
    report = json.loads((folder / "report.json").read_text())
    expect(out.count("dev accuracy of the average ") == 2 and "dev_ema_accuracy" in report, "finetune", out, report)


def test_names(folder):
    """Names of files are bytes, and those that are not UTF-8 work like others."""
    name = os.fsdecode(b"pictures\xff")
    (folder / name).symlink_to("cifar")
    train = ("resnet", "--data", name, *RESNET[3:], "--resume", "kept", "--snapshot-every", "2",
             "--steps", "4", "--save", name + ".model", "--report", "named.json")
    run(folder, *train)
    snapshots(folder)[-1].unlink()
    out, _ = run(folder, *train)
    expect("resuming after step 2" in out, "not resumed", out)
    json.loads((folder / "named.json").read_text())
    shutil.rmtree(folder / "kept")


def catches(pid):
    """Tells whether the process has a handler for SIGINT: it is in its training loop, and got no signal yet."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (signal.SIGINT - 1) & 1)
    return None  # it has ended


def wait_until(child, condition):
    while not condition():
        if child.poll() is not None:
            expect(False, "ended early", child.communicate())
        time.sleep(0.005)


def test_signals(folder):
    """The step is finished, a snapshot written, and the exit status says which signal it was."""
    endless = (*RESNET, "--steps", "100000000")
    for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        child = start(folder, *endless, "--resume", "kept", "--snapshot-every", "100000000")
        wait_until(child, lambda: catches(child.pid))
        _, errors = run(folder, *endless, "--resume", "kept", status=1)
        expect(f"in use by process {child.pid};" in errors, "a second process", errors)
        child.send_signal(number)
        _, errors = child.communicate(timeout=300)
        expect(child.returncode == status, "exit status", child.returncode, errors)
        # The second run goes on from the first one's.
        step = int(snapshots(folder)[-1].stem.split("-")[1])
        expect(f"after step {step} of 100000000; --resume 'kept' continues" in errors, "the step", errors)
    expect(len(snapshots(folder)) == 2, "a snapshot of each", snapshots(folder))

    mnist = ("mnist", "--epochs", "100000", "--runs", "single", *FAST)
    for command in (endless, mnist):
        child = start(folder, *command)
        wait_until(child, lambda: catches(child.pid))
        child.terminate()
        _, errors = child.communicate(timeout=300)
        expect(child.returncode == 143 and errors.startswith("stopped: "), "no snapshots", errors)

    # Two signals before the step is over: the second does not wait for it.
    child = start(folder, *endless, "--resume", "new")
    wait_until(child, lambda: catches(child.pid))
    child.send_signal(signal.SIGSTOP)
    os.waitpid(child.pid, os.WUNTRACED)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
        child.send_signal(number)
    child.communicate(timeout=300)
    # With several threads, either may be the first.
    expect(child.returncode in (-signal.SIGINT, -signal.SIGTERM), "the second signal", child.returncode)
    expect(not list((folder / "new").glob("step-*")), "the step was finished")


run_tests(globals(), "files and signals are treated well")
