#!/usr/bin/env python3
"""Tests the training programs under mpirun: the bits of one process, refusals, and the death of a rank.
Usage: test_ranks.py APPS_FOLDER. Skipped (status 77) where there is no mpirun, or a build without MPI."""

import filecmp
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

apps = Path(sys.argv[1]).resolve()
mpirun = shutil.which("mpirun")
if mpirun is None:
    print("skipped: there is no mpirun (apt install openmpi-bin)")
    sys.exit(77)
os.environ["OMPI_ALLOW_RUN_AS_ROOT"] = os.environ["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
is_open_mpi = "Open MPI" in subprocess.run([mpirun, "--version"], capture_output=True, text=True).stdout
LAUNCH = [mpirun] + (["--oversubscribe", "--bind-to", "none"] if is_open_mpi else [])
folder = Path(tempfile.mkdtemp())
os.environ["REWIND_CACHE"] = str(folder / "cache")
os.environ["OMP_NUM_THREADS"] = "1"

RESNET = ["resnet", "--device", "cpu", "--dtype", "f32", "--model", "resnet8", "--batch", "3",
          "--data", str(folder), "--quiet"]
MNIST = ["mnist", "--device", "cpu", "--runs", "accumulate", "--images", "50", "--epochs", "2", "--batch", "3", "--quiet"]
BERT = ["bert", "--device", "cpu", "--dtype", "f32", "--batch", "2", "--seq", "16", "--vocab-size", "300",
        "--text", str(folder / "text.txt"), "--quiet"]
for name, images in (("data_batch_1", 40), ("test_batch", 10)):  # in CIFAR-10's format
    pixels = random.Random(images)
    (folder / f"{name}.bin").write_bytes(b"".join(bytes([i % 10]) + pixels.randbytes(3072) for i in range(images)))
(folder / "text.txt").write_text("\n".join(f"the {i} ranks of a run have one model and {i * i} parts." for i in range(300)))
failures = 0


def expect(ok, what, result=None):
    global failures
    print(("ok: " if ok else "FAILED: ") + what, flush=True)
    if not ok:
        failures += 1
        if result is not None:
            print(result.stdout[-3000:], result.stderr[-3000:])


def run(ranks, program, *options):
    launch = LAUNCH + ["-n", str(ranks)] if ranks > 1 else []
    return subprocess.run(launch + [str(apps / program[0])] + program[1:] + [str(o) for o in options],
                          capture_output=True, text=True, timeout=300)


def same_bits(program, name, ranks, *options, save="--save"):
    files = []
    for count in ranks:
        file = folder / f"{name.replace(' ', '-')}-{count}"
        result = run(count, program, *options, save, file)
        expect(result.returncode == 0, f"{name}: {count} ranks", result)
        files.append(file / "model.safetensors" if file.is_dir() else file)
    same = all(f.exists() and filecmp.cmp(files[0], f, shallow=False) for f in files)
    expect(same, f"{name}: the same bits with {ranks} ranks")


def check_bits():
    for window, ranks in ((2, (1, 2)), (3, (1, 3)), (4, (1, 2, 4))):
        same_bits(RESNET, f"resnet {window}", ranks, "--steps", 2 * window + 1, "--accumulate", window)
    same_bits(RESNET, "exact", (1, 2), "--steps", 4, "--accumulate", 2, "--exact-batch-norm")
    same_bits(RESNET, "segments", (1, 2), "--steps", 4, "--accumulate", 2, "--checkpoint", "block")
    # Words are read twice in a pass: docs/parallel.md.
    same_bits(BERT, "bert", (1, 2, 4), "--steps", 9, "--accumulate", 4, "--overflow", "micro-batch")


def check_shards():
    """Optimizer states in parts give the same bits in less memory, which is predicted for every rank."""
    resnet, bert = ["--steps", 12, "--accumulate", 6], ["--steps", 9, "--accumulate", 6, "--overflow", "micro-batch"]
    for program, options, ranks in ((RESNET, resnet, 2), (RESNET, resnet, 3), (BERT, bert, 3)):
        name, bits, states = f"{program[0]} on {ranks}", [], []
        for shard, count in ((None, 1), ("none", ranks), ("states", ranks), ("parameters", ranks)):
            file, report = folder / f"sharded-{program[0]}-{ranks}-{shard}", folder / "sharded.json"
            result = run(count, program, *options, "--save", file, "--report", report,
                         *(["--shard", shard] if shard else []))
            expect(result.returncode == 0, f"{name}: --shard {shard}", result)
            bits.append((file / "model.safetensors" if file.is_dir() else file).read_bytes())
            if count == 1:
                continue
            device = json.loads(report.read_text())["device"]
            states.append(device["memory"]["optimizer_state"])
            expect(len(device["ranks"]) == ranks and all(r["peak"] == r["predicted_peak"] for r in device["ranks"]),
                   f"{name}: --shard {shard}: every rank's peak was predicted to the byte: {device['ranks']}")
            if program is RESNET and shard != "parameters":
                expect(device["memory"]["plan_misses"] == 0, f"{name}: --shard {shard}: steps are laid out as they repeat")
            expect(f"Of {ranks} ranks, {ranks} to the byte" in result.stdout, f"{name}: it is said", result)
        expect(bits.count(bits[0]) == 4, f"{name}: the same bits, whatever is in parts")
        expect(states[1] < 0.75 * states[0], f"{name}: less optimizer state on rank 0: {states}")
    result = run(1, RESNET, "--steps", 2, "--shard", "states")
    expect(result.returncode == 0 and "note: one rank keeps all: --shard states" in result.stderr, "one rank shards nothing", result)
    result = run(2, RESNET, "--steps", 3, "--shard", "parameters")
    expect(result.returncode != 0 and "2 ranks must divide the steps, got 3" in result.stderr, "steps that ranks cannot share out", result)
    result = run(2, RESNET, "--steps", 2, "--shard", "states", "--gradient-ranges")
    expect(result.returncode != 0 and "[options] --gradient-ranges shows all gradients" in result.stderr, "ranges of all gradients", result)


def check_plans():
    """Compares a plan for ranks, made by one process, with the run that it predicts."""
    options = ["--steps", 6, "--accumulate", 3, "--shard", "states"]
    report = folder / "plan.json"
    result = run(1, RESNET, *options, "--plan", "--ranks", 3, "--fit", "4MiB", "--report", report)
    expect(result.returncode == 0 and "Memory of the 3 ranks:" in result.stdout and "on each of 3 ranks" in result.stdout,
           "a plan for ranks", result)
    plan = json.loads(report.read_text())
    expect({row["shard"] for row in plan["fit"]["rows"]} == {"none", "states", "parameters"}, "largest batches for each way of sharding", result)
    result = run(3, RESNET, *options, "--report", report)
    real = [rank["peak"] for rank in json.loads(report.read_text())["device"]["ranks"]]
    expect(real == [rank["peak"] for rank in plan["ranks"]], f"the ranks need what was planned: {real}", result)
    expect(plan["memory"]["peak"] == max(real), "the plan is that of the rank that needs most")


def check_mnist():
    losses = []
    for ranks, shard in ((1, "none"), (2, "none"), (4, "states")):
        report = folder / f"mnist-{ranks}.json"
        result = run(ranks, MNIST, "--accumulate", 4, "--report", report, "--overflow", "micro-batch", "--shard", shard)
        expect(result.returncode == 0, f"mnist: {ranks} ranks", result)
        trained = json.loads(report.read_text())["runs"][0]
        losses.append((trained["updates"], round(trained["train_loss"], 4), trained["test_accuracy"]))
    expect(losses[0] == losses[1] == losses[2], f"mnist: updates, loss and accuracy are those of one process: {losses}")


def check_reports():
    report = folder / "report.json"
    result = run(2, RESNET[:-1], "--steps", 4, "--report", report)
    lines = [l for l in result.stdout.splitlines() if l.startswith("resnet8 (")]
    expect(len(lines) == 1 and ", 2 ranks of " in lines[0], "one rank prints", result)
    expect("--accumulate 2, not 1" in result.stderr, "what ranks change is said", result)
    expect(json.loads(report.read_text())["updates"] == 2, "the report is of the whole run", result)


def start(ranks, program, *options):
    launch = LAUNCH + ["-n", str(ranks)] if ranks > 1 else []
    return subprocess.Popen(launch + [str(apps / program[0])] + program[1:] + [str(o) for o in options],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def sharded(ranks, stage="states"):
    return ["--shard", stage] if ranks > 1 else []


def check_resume():
    """A run that stops with 2 ranks and is resumed with 4 or with one process has the bits of one that was not stopped."""
    options = ["--accumulate", 4, "--snapshot-every", 8]
    whole = folder / "whole"
    expect(run(1, RESNET, *options, "--steps", 16, "--save", whole).returncode == 0, "a whole run")
    for first, then, shards in ((2, 4, 0), (4, 1, 0), (1, 2, 0), (2, 4, 2), (4, 1, 1), (2, 4, 1), (1, 2, 2)):
        name = f"{first}-{then}-{shards}"
        snapshots, end = folder / f"snapshots-{name}", folder / f"resumed-{name}"
        # The schedule depends on the total, so the run is stopped by a signal instead of --steps.
        process = start(first, RESNET, *options, "--steps", 16, "--resume", snapshots, *(sharded(first) if shards else []))
        while process.poll() is None and not list(snapshots.glob("step-*.safetensors")):
            time.sleep(0.02)
        alone = children(process.pid)
        process.kill()
        process.communicate()
        deadline = time.monotonic() + 60
        while any(map(is_alive, alone)) and time.monotonic() < deadline:  # until mpirun's ranks see that it is gone
            time.sleep(0.05)
        if shards:
            parts = len(list(snapshots.glob("*.part-*")))
            expect(parts >= first - 1, f"each of {first} ranks has written its part: {parts}")
        result = run(then, RESNET, *options, "--steps", 16, "--resume", snapshots, "--save", end,
                     *(sharded(then) if shards == 2 else []))
        expect(result.returncode == 0 and filecmp.cmp(whole, end, shallow=False),
               f"killed with {first} ranks, gone on with {then}{' in parts' if shards == 2 else ''}: the bits of a run that was not",
               result)


def check_killed_saves():
    """A rank is killed at any moment, again and again, while all write snapshots: training ends with the same bits."""
    options = ["--accumulate", 4, "--snapshot-every", 4, "--steps", 48]
    whole, end, snapshots = folder / "all", folder / "all-resumed", folder / "snapshots-killed"
    expect(run(1, RESNET, *options, "--save", whole).returncode == 0, "a whole run")
    moments, kills = random.Random(4), 0
    for ranks, stage in ((2, "states"), (4, "parameters"), (2, "parameters"), (4, "states")):
        newest = lambda: max(snapshots.glob("step-*.safetensors"), default=None)
        before, process = newest(), start(ranks, RESNET, *options, "--resume", snapshots, *sharded(ranks, stage))
        while process.poll() is None and newest() == before:
            time.sleep(0.005)
        time.sleep(moments.random() / 4)
        victims = children(process.pid)
        if process.poll() is None and victims:
            os.kill(moments.choice(victims), signal.SIGKILL)
            kills += 1
        process.communicate(timeout=60)
    expect(kills > 0, f"{kills} ranks were killed")
    result = run(4, RESNET, *options, "--resume", snapshots, "--save", end, *sharded(4))
    expect(result.returncode == 0 and "warning" not in result.stderr and filecmp.cmp(whole, end, shallow=False),
           "a run whose ranks were killed has the bits of one that was not", result)
    # How many ranks wrote the older one depends on the step that a killed run had reached.
    left = sorted(path.name for path in snapshots.iterdir())
    indexes = [name for name in left if name.endswith(".safetensors")]
    parts = [next(name for name in left if name.startswith(index + ".")).split(".part-1-of-") for index in indexes]
    whole_files = [f"{head}.part-{i + 1}-of-{count}" for head, count in parts for i in range(int(count))]
    expect(len(indexes) == 2 and left == sorted(["lock", *indexes, *whole_files]),
           f"two snapshots with all parts are left, and the lock: {left}")


def resnet(options):
    """Takes four steps with these options in place of the usual ones."""
    usual = dict(zip(RESNET[1:-1:2], RESNET[2:-1:2]))
    usual.update({"--steps": "4"}, **dict(zip(options[::2], options[1::2])))
    return [str(apps / "resnet"), "--quiet"] + [word for pair in usual.items() for word in pair]


def two_kinds(first, second):
    """Runs rank 0 with the first options and rank 1 with the second."""
    return subprocess.run(LAUNCH + ["-n", "1"] + resnet(first) + [":", "-n", "1"] + resnet(second),
                          capture_output=True, text=True, timeout=120)


def in_two_folders(first, second):
    """Runs both with the same options, rank 1 with another current folder, in which its data lie."""
    return subprocess.run(
        LAUNCH + ["-n", "2", "bash", "-c",
                  'cd "$1" && [ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" != 1 ] || cd "$2"; shift 2; exec "$@"', "ranks",
                  str(first), str(second), *resnet(["--data", "."])],
        capture_output=True, text=True, timeout=120)


def check_refusals():
    other = folder / "other"
    other.mkdir()
    for name in ("data_batch_1", "test_batch"):
        file = bytearray((folder / f"{name}.bin").read_bytes())
        file[77] ^= 1
        (other / f"{name}.bin").write_bytes(file)
    (other / "data_batch_1.bin").write_bytes((other / "data_batch_1.bin").read_bytes()[:3073 * 30])
    for what, second, message in (
            ("options", ["--batch", "4"], "got '--batch: 3' on rank 0 and '--batch: 4' on rank 1"),
            ("sharding", ["--shard", "states"], "got '--shard: none' on rank 0 and '--shard: states' on rank 1"),
            ("data", ["--data", str(other)], "got '--data: "),
            ("overflow rules", ["--overflow", "micro-batch"], "got '--overflow: window' on rank 0 and '--overflow: micro-batch'"),
            ("snapshots", ["--resume", str(folder / "one")], "got '--resume: not given' on rank 0 and '--resume: "),
            ("loss scales", ["--loss-scale", "fixed:8"], "got '--loss-scale: not given' on rank 0 and '--loss-scale: fixed:8'"),
            ("learning rates", ["--lr", "0.2"], "got '--lr: "),
            ("options that change nothing", ["--batch", "03"], None)):
        result = two_kinds([], second)
        told = result.stderr.count("error: [ranks] all ranks must have the same, got ")
        expect(message is None and result.returncode == 0 or
               message and result.returncode != 0 and told == 1 and message in result.stderr
               and "; start all ranks with the same" in result.stderr and result.stderr.count("error: ") == 1,
               f"other {what} on a rank", result)
    bert = [str(apps / "bert")] + BERT[1:] + ["--steps", "2", "--save", str(folder / "moved")]
    result = subprocess.run(LAUNCH + ["-n", "1"] + bert + [":", "-n", "1"] + bert + ["--offload", "states"],
                            capture_output=True, text=True, timeout=120)
    expect(result.returncode != 0 and "got '--offload: none' on rank 0 and '--offload: states' on rank 1" in result.stderr,
           "states in host memory on one rank only", result)
    result = in_two_folders(folder, other)
    expect(result.returncode != 0 and result.stderr.count("got 'the data: ") == 1, "other data of the same name", result)
    result = two_kinds([], ["--batch", "many"])
    expect(result.returncode != 0 and "rank 1: error: " in result.stderr, "an option that only one rank cannot read", result)
    (folder / "empty").mkdir()
    result = in_two_folders(folder, folder / "empty")
    expect(result.returncode != 0 and result.stderr.count("error: ") == 1 and "rank 1: error: " in result.stderr,
           "an error of one rank is told once, with its number, and ends all", result)
    result = run(2, RESNET, "--steps", 4, "--exact-batch-norm", "--accumulate", 4)
    expect(result.returncode != 0 and result.stderr.count("error: ") == 1 and "--accumulate must be 2, got 4" in result.stderr,
           "exact batch norm of 4 on 2", result)
    result = run(2, BERT, "--steps", 4, "--fused-update", 1, "--save", folder / "fused")
    expect(result.returncode != 0 and "no --fused-update" in result.stderr, "updates inside backward", result)


def children(pid):
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True).stdout
    return [int(p) for p in listed.split()]


def is_alive(pid):
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()
    return bool(state) and not state.startswith("Z")


def check_death():
    """If a rank is killed, the run ends within seconds, and says so."""
    process = subprocess.Popen(LAUNCH + ["-n", "3", str(apps / RESNET[0])] + RESNET[1:] + ["--steps", "100000"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while len(children(process.pid)) < 3 and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(5)  # they train
    victim = children(process.pid)[1]
    environment = Path(f"/proc/{victim}/environ").read_text().split("\0")
    rank = next(word.split("=")[1] for word in environment if word.startswith(("OMPI_COMM_WORLD_RANK=", "PMI_RANK=")))
    os.kill(victim, signal.SIGKILL)
    start = time.monotonic()
    try:
        out, err = process.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
    seconds = time.monotonic() - start
    expect(process.returncode != 0 and seconds < 20, f"a killed rank ended the others in {seconds:.1f} s")
    expect(err.count("error: ") == 1 and f"error: rank {rank} of 3 has died, as after kill -9" in err,
           f"another rank says that it was rank {rank}: {err}")


probe = run(2, RESNET, "--steps", 2)
if "build with MPI, got one without" in probe.stderr:
    print("skipped: this build has no MPI")
    sys.exit(77)
try:
    check_bits()
    check_shards()
    check_plans()
    check_mnist()
    check_reports()
    check_resume()
    check_killed_saves()
    check_refusals()
    check_death()
finally:
    shutil.rmtree(folder, ignore_errors=True)
sys.exit(f"{failures} failures" if failures else 0)
