#!/usr/bin/env python3
"""Planted faults must be found, and their inputs kept. Usage: check_planted.py FUZZ"""

import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = sys.argv[1]
FAULTS = {"type": "planted", "memory": "wants far more memory", "crash": "the process crashed", "hang": "no end in time",
          "promise": "planted"}

for fault, message in FAULTS.items():
    with tempfile.TemporaryDirectory() as folder:
        command = [PROGRAM, f"planted_{fault}", "--artifacts", folder, "--input-seconds", "1"]
        run = subprocess.run(command, capture_output=True, text=True)
        said = f"target planted_{fault}: {message}"
        kept = Path(folder) / f"fuzz-planted_{fault}.input"
        if run.returncode != 1 or said not in run.stderr or not kept.exists():
            sys.exit(f"the fault '{fault}' is not found: {run.returncode} {run.stdout} {run.stderr}")
        again = subprocess.run([*command, "--replay", kept], capture_output=True, text=True)
        if again.returncode != 1 or said not in again.stderr:
            sys.exit(f"the input of '{fault}' does not show it: {again.stdout} {again.stderr}")
if subprocess.run([PROGRAM, "nothing"], capture_output=True).returncode != 1:
    sys.exit("a target that is not there is no error")
print("planted faults are found")
