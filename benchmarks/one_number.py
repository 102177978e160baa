#!/usr/bin/env python3
"""What `--memory` chooses for well-known models on three machines, by dry runs.

    benchmarks/one_number.py > benchmarks/results/one-number.md      uses the programs of build/
"""
import datetime
import json
import os
import re
import resource
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MACHINES = {
    "8 GiB GPU (RX 7900 XTX, limited), 64 GiB": ["--device", "dry:rx7900xtx.json", "--memory", "8GiB",
                                                 "--host-memory", "64GiB"],
    "24 GB GPU (RX 7900 XTX), 128 GiB": ["--device", "dry:rx7900xtx.json", "--memory", "23GiB",
                                         "--host-memory", "128GiB"],
    "laptop without a GPU, 16 GB": ["--device", "dry:cpu", "--memory", "13GiB"]}
LANGUAGE = ("smollm2-135m", "smollm2-360m", "qwen3-0.6b", "llama-3.2-1b", "qwen3-1.7b", "llama-3.2-3b", "llama-3.1-8b")
MODELS = {f"{name}, 8 x 2048": ["lm", "train", "--config", name, "--seq", "2048", "--batch", "8"] for name in LANGUAGE} | {
    "BERT-large, 32 x 512": ["bert", "--model", "large", "--vocab-size", "30522", "--seq", "512", "--batch", "32",
                             "--accumulate", "1"],
    "ResNet-50, 128 x 224": ["resnet", "--model", "resnet50", "--image", "224", "--classes", "1000", "--batch", "128"]}


# Models without a program of their own.
IN_LIBRARY = {"ViT-B/16, 128 x 224": ["bench", "model_choices", "--model", "vit-b", "--batch", "128"],
              "U-Net, 16 x 512": ["bench", "model_choices", "--model", "unet", "--batch", "16"]}

REAL = {"language model `tiny`, 8 x 128": ["lm", "train", "--steps", "20", "--memory", "40MiB", "--sample", ""],
        "BERT-mini, 16 x 64": ["bert", "--steps", "20", "--batch", "16", "--memory", "18MiB"],
        "ResNet-20, 32 images": ["resnet", "--steps", "60", "--memory", "16MiB"]}


def real(command):
    """Returns the cells of a run on the cpu: the bound, the peaks as forecast and real, and the times of an update."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        subprocess.run([ROOT / "build/apps" / command[0], *command[1:], "--save", f"{folder}/model", "--report", report,
                        "--device", "cpu", "--quiet"], check=True, capture_output=True)
        found = json.loads(report.read_text())
    device, memory = found["device"], found["device"]["memory"]
    before, after = found["predicted_update_seconds"], found["update_seconds"]
    return [command[command.index("--memory") + 1], f"{device['predicted_peak']:,}", f"{memory['peak']:,}",
            f"{before:.3g} s", f"{after:.3g} s", f"{after / before:.2f}"]


def chosen(model, machine):
    """Returns the cells of a row: what was asked for, and what was chosen."""
    start = time.monotonic()
    done = subprocess.run([ROOT / "build/apps" / model[0], *model[1:], "--plan", *machine], capture_output=True, text=True)
    seconds = time.monotonic() - start
    text = done.stdout + done.stderr
    rows = re.findall(r"^  (.+?) {2,}([\d.]+ \w+) +([\d.]+ \w+) +([\d.e+]+) s$", text, re.M)
    if done.returncode or not rows:
        return ["", "", "does not fit: " + re.sub(r".*The least is ", "the least is ", text.strip().splitlines()[-1]), "",
                "", f"{seconds:.1f} s"]
    by_hand = re.search(r"^By hand: (.*)$", text, re.M)
    asked, last = rows[0], rows[-1]
    return [asked[1], f"{asked[3]} s", f"`{by_hand[1]}`" if by_hand else "nothing changes", last[1],
            f"{float(last[3]) / float(asked[3]):.2f}", f"{seconds:.1f} s"]


ROW = re.compile(r"^  (.+?) {2,}([\d.]+) (KiB|MiB|GiB) +([\d.]+ \w+) +([\d.e+]+) s$", re.M)
UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
BLOCKS = 63 / 64  # blocks are larger than what lies in them: so much of a bound holds values


def rows_after(lines, heading):
    """Returns (bytes, seconds) of the rows of the table that begins with the heading, as soon as it is complete."""
    found = None
    for line in lines:
        row = ROW.match(line)
        if found is None and heading in line:
            found = []
        elif found is not None and row:
            found.append((float(row[2]) * UNITS[row[3]], float(row[5])))
        elif found:
            return found
    return found or []


def plan(model, *options):
    """Returns (bytes, seconds) of the way that is chosen and, with --front, of all that are worth having, and the CPU
    seconds. What the command prints behind its tables is not waited for."""
    folder, host = ("benchmarks", ()) if model[0] == "bench" else ("apps", ("--plan",))
    command = ["stdbuf", "-oL", ROOT / "build" / folder / model[0], *model[1:], *host, "--device", "dry:rx7900xtx.json",
               "--host-memory", "128GiB", *options]
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as running:
        chosen = rows_after(running.stdout, "peak on the host")
        front = rows_after(running.stdout, "all ways that no other one beats") if "--front" in options else []
        running.kill()
    return chosen[-1:], front, resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def against_all(model):
    """Returns the cells of a row: what is chosen for three bounds beside the best of all ways, which are measured."""
    front = plan(model, "--memory", "1000GiB", "--front")[1]
    peaks = sorted({peak for peak, _ in front})
    cells, most = [str(len(front))], 0
    for share in (0.1, 0.4, 0.7):
        at = int(share * (len(peaks) - 1))
        bound = max((peaks[at] + peaks[at + 1]) / 2, 1.01 * peaks[at] / BLOCKS)
        chosen, _, seconds = plan(model, "--memory", f"{bound / 2**20:.0f}MiB")
        best = min(seconds for peak, seconds in front if peak <= BLOCKS * bound)
        # Values that fit may not do so in blocks.
        cells.append(f"{bound / 2**30:.2f} GiB: " + (f"{chosen[0][1] / best:.3f}" if chosen else "refused"))
        most = max(most, seconds)
    return [*cells, f"{most:.1f} s"]


def main():
    processor = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.M)[1]
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    print("# One number for memory\n\n"
          "What `--memory` chooses ([how](../../docs/planning.md#one-number)), by dry runs: peak and modelled time of an\n"
          "update as it was asked for, the options that are chosen, and their peak and time against that. The speed of\n"
          "these devices is assumed (10 TFLOP/s, 500 GB/s, 25 GB/s over the bus), so times are ratios. AdamW with f32\n"
          "masters, activations in f16, the same update everywhere. The last column is the whole command.\n\n"
          f"`benchmarks/one_number.py` at {commit.stdout.strip()}, {datetime.date.today()}, on {os.cpu_count()} processors, {processor}.")
    for name, machine in MACHINES.items():
        print(f"\n## {name}\n\n| | as asked | | chosen | peak | time | planned in |\n|---|---:|---:|---|---:|---:|---:|")
        for title, model in MODELS.items():
            print("| " + " | ".join([title, *chosen(model, machine)]) + " |", flush=True)
    print("\n## Beside all ways\n\nEvery way that `--memory` knows is measured (`--front`), on an RX 7900 XTX with 128 GiB of\n"
          "host memory. For three bounds: the modelled time of what is chosen over the least of all ways that fit, and the\n"
          "most CPU seconds of planning.\n\n"
          "| | ways worth having | | | | planning |\n|---|---:|---|---|---|---:|")
    for title, model in (MODELS | IN_LIBRARY).items():
        print("| " + " | ".join([title, *against_all(model)]) + " |", flush=True)
    print("\n## Real runs\n\nOn the device `cpu` of this machine, at speeds that are measured before each run.\n\n"
          "| | bound | forecast peak | real peak | update, predicted | measured | ratio |\n|---|---:|---:|---:|---:|---:|---:|")
    for title, command in REAL.items():
        print("| " + " | ".join([title, *real(command)]) + " |", flush=True)


if __name__ == "__main__":
    main()
