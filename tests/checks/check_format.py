#!/usr/bin/env python3
"""Checks that C++ files are as .clang-format says. Usage: check_format.py ROOT. It ends with 77 (skipped)
if there is no clang-format of Debian 12's version, whose decisions count."""

import re
import subprocess
import sys
from pathlib import Path

VERSION = 14
FOLDERS = ("apps", "backends", "benchmarks", "core", "data", "dist", "examples", "io", "models", "nn", "ops", "optim", "planner",
           "python", "shaders", "tests", "tools", "trainer")


def clang_format():
    for name in (f"clang-format-{VERSION}", "clang-format"):
        try:
            text = subprocess.run([name, "--version"], capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            continue
        if re.search(rf"version {VERSION}\.", text):
            return name
    return None


root, program = Path(sys.argv[1]), clang_format()
if not program:
    print(f"no clang-format {VERSION}: skipped")
    sys.exit(77)
files = [root / "rewind.h"] + [f for folder in FOLDERS for f in sorted((root / folder).rglob("*"))
                                 if f.suffix in (".h", ".cpp")]
result = subprocess.run([program, "--dry-run", "-Werror", *files], capture_output=True, text=True)
wrong = sorted(set(re.findall(r"^(.*?):\d+:\d+: error: code should be clang-formatted", result.stderr, re.M)))
if result.returncode:
    sys.exit(f"{program} -i {' '.join(wrong)}\nwould change these {len(wrong)} of {len(files)} files" if wrong
             else result.stderr)
print(f"{len(files)} files are formatted")
