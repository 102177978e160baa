#!/usr/bin/env python3
"""Measures what builds cost: the first command in a fresh clone, everything, and what a change makes anew. Nothing comes from
compilers' caches. CPU seconds, user and system; a unit is those of parsing the C++ library, the least of three, since
processors differ twofold. Takes a quarter of an hour on two cores; packages must be there.

Usage: build_times.py [--keep FOLDER]"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PARSING = "echo '#include <bits/stdc++.h>' | g++ -std=c++20 -fsyntax-only -x c++ -"
# A change of each of these files is measured.
CHANGES = ("ops/network/softmax.cpp", "core/tensor/tensor.h")


def cost(command, folder, **variables):
    """Returns CPU and wall seconds of a command."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(command, shell=True, cwd=folder, env=os.environ | variables, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{command} failed:\n{done.stdout[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, time.monotonic() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", help="the folder of the clone, which stays")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        clone = Path(options.keep or scratch + "/rewind")
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        environment = {"CCACHE_DISABLE": "1", "REWIND_CACHE": scratch + "/cache", "REWIND_NO_INSTALL": "1"}
        unit = min(cost(PARSING, clone)[0] for _ in range(3))
        print(f"{os.cpu_count()} processors; a unit is {unit:.2f} CPU seconds\n\n"
              "| what | CPU seconds | units | wall seconds |\n|---|---:|---:|---:|", flush=True)

        def row(what, command):
            cpu, wall = cost(command, clone, **environment)
            print(f"| {what} | {cpu:.0f} | {cpu / unit:.0f} | {wall:.0f} |", flush=True)

        row("`./rewind resnet`, first command", "./rewind resnet")
        program = "ninja -C build apps/resnet && build/apps/resnet --help"
        for file in CHANGES:
            with open(clone / file, "a", encoding="utf-8") as changed:
                changed.write("// A change.\n")
            row(f"after a change of `{file}`, to resnet that runs", program)
        row("`./rewind build`, the rest", "./rewind build")


if __name__ == "__main__":
    main()
