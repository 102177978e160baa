#!/usr/bin/env python3
"""Compares Rewind with PyTorch and OpenBLAS on this machine, in turns, as ratios: every contender is a server that measures
the cases that it is given (benchmarks/speed, benchmarks/peers/speed.py). A ratio is the time of PyTorch, or of --against,
over the contender's, so above 1 is faster. It is the median over rounds, with the least and the largest in brackets.

`./rewind bench speed` runs it. A contender that is missing or ends early is named in the result.
Usage: speed.py [--build DIR] [--device D] [--python COMMAND] [--only TEXT] [--rounds N] [--output FILE.md]"""

import argparse
import json
import os
import platform
import re
import shlex
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAUSE = 0.15  # seconds before a round: threads of OpenBLAS wait so long for more work, on a core that the next one needs


class Contender:
    def __init__(self, label, command):
        self.label, self.command, self.why_not = label, command, None
        self.skipped, self.measured = None, False
        try:
            self.process = subprocess.Popen(shlex.split(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        except OSError as error:
            self.process, self.why_not = None, str(error)

    def time(self, case):
        """Returns the seconds of a run, or None if this contender cannot do it."""
        if self.why_not:
            return None
        try:
            self.process.stdin.write(case + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline().strip()
        except BrokenPipeError:
            answer = ""
        if not answer:
            self.why_not = f"it ended (exit status {self.process.wait()}), asked for {case}"
            print(f"{self.label}: {self.why_not}", file=sys.stderr)
            return None
        if answer.startswith("skip"):
            self.skipped = answer.removeprefix("skip").strip()
            return None
        self.measured = True
        return float(answer)

    def missing(self):
        """Returns why it is in no row, or None if it is in one."""
        return self.why_not or (None if self.measured else self.skipped)


def measure(case, contenders, rounds):
    """Returns times by label, of the rounds in which all took part; slow cases get fewer rounds."""
    able = [c for c in contenders if c.time(case) is not None]
    times = {c.label: [] for c in able}
    for done in range(rounds):
        for c in able:
            time.sleep(PAUSE)
            times[c.label].append(c.time(case))
        if done >= 2 and sum(sum(t) for t in times.values() if None not in t) > 60:
            break
    return {label: t for label, t in times.items() if None not in t}


def spread(times, against):
    ratios = sorted(b / a for a, b in zip(times, against))
    return statistics.median(ratios), ratios[0], ratios[-1]


def milliseconds(seconds):
    ms = statistics.median(seconds) * 1e3
    return f"{ms:.3f}" if ms < 10 else f"{ms:.1f}"


def processor():
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []:
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.processor() or "unknown processor"


def processors():
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def program(build, folder, name):
    """Returns its path in a build folder, or in a bundle, where programs lie side by side."""
    built = f"{build}/{folder}/{name}"
    return built if os.path.exists(built) else f"{build}/{name}"


def pytorch(python):
    """Returns the version of PyTorch, its libraries and the instructions that it uses, or nothing if there is none."""
    text = "import torch; print(torch.__version__); print(torch.__config__.show())"
    try:
        asked = subprocess.run(shlex.split(python) + ["-c", text], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    parts = [re.search(pattern, asked.stdout) for pattern in (
        r"(?<=BLAS_INFO=)\w+", r"(?<=Math Kernel Library Version )[\d.]+", r"MKL-DNN v[\d.]+", r"(?<=CPU capability usage: )\w+")]
    return f"PyTorch {asked.stdout.split()[0]} ({', '.join(part[0] for part in parts if part)})"


def device(build, name):
    """Returns the name and the driver of the device, by `info`, or nothing if that fails."""
    asked = subprocess.run([program(build, "tools", "info"), "--json"], capture_output=True, text=True, check=False)
    try:
        found = json.loads(asked.stdout)
        kind = name.split(":")[0]
        if name == "auto":
            kind = "vulkan" if any(d["type"].endswith("GPU") for d in found) else "cpu"
        return "; ".join(f"{d['name']}, {d['driver']}" for d in found if d["device"].startswith(kind)) or name
    except (json.JSONDecodeError, KeyError, TypeError):
        return name


def markdown(report):
    labels, base = report["contenders"], report["against"]
    lines = ["# Speed", "", "; ".join(filter(None, (report["device"], report["machine"], report["pytorch"]))), f"`{report['command']}`", ""]
    lines += [f"- {label}: `{command}`" for label, command in labels.items()]
    lines += [f"- **not measured**, {label}: {why}" for label, why in report["missing"].items()]
    lines += ["", f"Milliseconds of a run and, in turns with it, the time of {base} over it: above 1 is faster. Median of the "
              "rounds, least and most in brackets.", ""]
    others = [label for label in labels if label != base]
    lines += ["| case | " + " | ".join([base + ", ms"] + others) + " |", "|---|" + "---:|" * len(labels)]
    for row in report["cases"]:
        times = row["seconds"]
        cells = [milliseconds(times[base]) if base in times else "-"]
        for label in others:
            if label not in times:
                cells.append("-")
            elif base not in times:
                cells.append(f"{milliseconds(times[label])} ms")
            else:
                middle, least, most = spread(times[label], times[base])
                cells.append(f"{milliseconds(times[label])} ms, **{middle:.2f}** ({least:.2f}-{most:.2f})")
        lines.append(f"| {row['name']} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=str(ROOT / "build"))
    parser.add_argument("--device", default="auto", help="Rewind's")
    parser.add_argument("--dtypes", default="f32,f16", help="Rewind's, one contender each")
    parser.add_argument("--python", default="python3", help="a command that runs a Python with PyTorch")
    parser.add_argument("--peer", default=str(Path(__file__).resolve().parent / "peers/speed.py"), help="the file that it runs, by the path that it sees")
    parser.add_argument("--peer-options", action="append", help='of the peer, a contender each time; default: "--device cpu"')
    parser.add_argument("--contender", action="append", default=[], metavar="LABEL=COMMAND", help="another contender")
    parser.add_argument("--against", help="the label that ratios are against; default: the first PyTorch")
    parser.add_argument("--only", default="", help="only cases whose names contain one of these, separated by commas")
    parser.add_argument("--large", action="store_true", help="measure the cases that take a CPU minutes, instead of the others")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--round", type=float, default=0.2, help="seconds to measure at a time")
    parser.add_argument("--output", help="FILE.md; its numbers are written to FILE.json")
    return parser.parse_args()


def contenders_of(o):
    commands = {}
    for options in o.peer_options or ["--device cpu"]:
        label = "PyTorch" if not o.peer_options else f"PyTorch {options}"
        commands[label] = f"{o.python} {o.peer} {options} --round {o.round}"
    speed = f"{program(o.build, 'benchmarks', 'speed')} --serve --round {o.round}"
    for dtype in o.dtypes.split(","):
        commands[f"Rewind {dtype}"] = f"{speed} --device {o.device} --dtype {dtype}"
    commands["OpenBLAS, memcpy"] = f"{speed} --reference"
    commands.update(c.split("=", 1) for c in o.contender)
    return commands


def main():
    o = parsed()
    commands = contenders_of(o)
    list_cases = [program(o.build, "benchmarks", "speed"), "--list"] + ["--large"] * o.large
    listed = subprocess.run(list_cases, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        sys.exit(listed.stderr.strip() or f"{shlex.join(list_cases)} failed")
    names = [line.split()[0] for line in listed.stdout.splitlines()]
    names = [name for name in names if any(text in name for text in o.only.split(","))]
    contenders = [Contender(label, command) for label, command in commands.items()]
    base = o.against or next(iter(commands))
    report = {"device": device(o.build, o.device), "machine": f"{processor()}, {processors()} processors",
              "pytorch": pytorch(o.python), "command": shlex.join(["benchmarks/speed.py", *sys.argv[1:]]), "contenders": commands, "against": base,
              "cases": []}
    for name in names:
        report["cases"].append({"name": name, "seconds": measure(name, contenders, o.rounds)})
        report["missing"] = {c.label: c.missing() for c in contenders if c.missing()}
        print(markdown(report).splitlines()[-1], flush=True)
        if o.output:  # whatever happens later, this is kept
            Path(o.output).write_text(markdown(report))
            Path(o.output).with_suffix(".json").write_text(json.dumps(report, indent=1))
    for label, why in report["missing"].items():
        print(f"not measured, {label}: {why}")


if __name__ == "__main__":
    main()
