#!/usr/bin/env python3
"""Programs where something of the machine is missing. Usage: test_commands.py REWIND GEMM_BENCHMARK"""

import os
import re
import subprocess
import sys
import tempfile

REWIND, GEMM = (os.path.abspath(path) for path in sys.argv[1:])


def run(*command, **variables):
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, **variables})


def expect(condition, what, result):
    if not condition:
        sys.exit(f"{what}: {result.returncode}\n{result.stdout}\n{result.stderr}")


def test_temporary_folder():
    """No command needs TMPDIR before it has something to keep there."""
    for folder in ("/nonexistent", "/dev/null", ""):
        for command in ("help", "--help"):
            result = run(REWIND, command, TMPDIR=folder)
            expect(result.returncode == 0 and "Usage:" in result.stdout, "help", result)
        result = run(REWIND, "nonsense", TMPDIR=folder)
        expect(result.returncode == 1 and "no such command" in result.stderr, "a wrong command", result)


def test_driver_names():
    result = run(REWIND, "test", "--driver", "nothing")
    expect(result.returncode == 1 and "there is no driver 'nothing', there are: " in result.stderr, "driver", result)
    for name in ("lavapipe-backports", "lavapipe-forky", "radv:navi31", "all"):
        expect(f" {name}" in result.stderr, name, result)
    result = run(REWIND, "test", "nothing")
    expect(result.returncode == 1 and "--driver NAME|all" in result.stderr, "test how", result)


def test_no_driver():
    result = run(GEMM, "--only", "gemm", VK_DRIVER_FILES="/nonexistent", VK_ICD_FILENAMES="/nonexistent")
    expect(result.returncode == 1 and result.stderr.startswith("error: ") and "terminate" not in result.stderr,
           "no driver", result)
    for option in (("--repeats", "0"), ("--batch", "0"), ("--only", "nothing")):
        result = run(GEMM, *option)
        expect(result.returncode == 1 and option[0] in result.stderr, "a wrong option", result)


def test_rates():
    """With OpenBLAS a ratio in each cell, without it none; never `inf`."""
    result = run(GEMM, "--only", "gemm", "--repeats", "1")
    rows = [line for line in result.stdout.splitlines() if re.match(r"\| \d+ x", line)]
    expect(result.returncode == 0 and len(rows) == 9, "the table", result)
    expect("inf" not in result.stdout and "nan" not in result.stdout, "rates", result)
    number = r"[1-9]\d*\.\d|0\.[1-9]"
    with_blas = "- OpenBLAS:" in result.stdout
    cells = rf"(?:{number})" + (r" \(\d+\.\d{3}\)" if with_blas else "")
    blas = rf"(?:{number})" if with_blas else "not installed"
    for row in rows:
        expect(re.fullmatch(rf"\| [\dx ]+ \| [NT]{{2}} \| {blas} \| {cells} \| {cells} \|", row), row, result)


test_temporary_folder()
test_driver_names()
test_no_driver()
test_rates()
print("errors are lines, tables have numbers")
