#!/usr/bin/env python3
"""Tests the command `tune`: it lists, measures, stores and forgets choices. Usage: test_tune.py TUNE INFO"""

import os
import subprocess
import sys
import tempfile

TUNE, INFO = sys.argv[1:]


def run(*command, **environment):
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})


def expect(done, text, code=0):
    assert done.returncode == code and text in done.stdout + done.stderr, (done.args, done.stdout, done.stderr)
    return done.stdout


def main():
    first = run(INFO)
    if first.returncode != 0 and "driver" in first.stderr:
        print("skipped: " + first.stderr.strip())
        return
    mlp = [TUNE, "--model", "mlp-100", "--dtype", "f32"]
    with tempfile.TemporaryDirectory() as folder:
        own = {"REWIND_CACHE": folder, "REWIND_WITHOUT": "self-check"}
        listed = expect(run(*mlp, "--dry", **own), "0 choices are kept")
        assert "m128 n512 k512" in listed, listed
        expect(run(INFO, **own), "none: ./rewind tune")
        if "REWIND_LIKE_GPU" not in os.environ:  # CPU drivers compile those tiles for minutes
            expect(run(*mlp, "--quick", "--only", "k8 ", **own), "of 1 classes are faster")
            assert any(name.startswith("tuning-") for name in os.listdir(folder)), os.listdir(folder)
            expect(run(TUNE, "--reset", **own), "forgotten")
        expect(run(TUNE, "--reset", **own), "nothing was tuned")
        expect(run(TUNE, "--for", folder + "/missing", **own), "must be a file that can be read", 1)
        expect(run(TUNE, "--model", "nobody", **own), "no model's name contains 'nobody'", 1)
        expect(run(TUNE, "--device", "cpu", **own), "[tune] a device must be 'vulkan'", 1)
        log = folder + "/products"
        with open(log, "w", encoding="utf-8") as file:
            file.write("matmul f32 f32 f32 1 2 3\n")
        expect(run(TUNE, "--for", log, **own), "[matmul] must have 3 bindings", 1)
    print("tune lists, measures, keeps and forgets")


main()
