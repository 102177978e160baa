#!/usr/bin/env python3
"""Tests what `info` prints about each device. Usage: test_info.py PROGRAM"""

import json
import os
import subprocess
import sys

PROGRAM = sys.argv[1]


def run(*options, **environment):
    return subprocess.run([PROGRAM, *options], capture_output=True, text=True, check=False,
                          env={**os.environ, **environment})


def devices(**environment):
    done = run("--json", **environment)
    assert done.returncode == 0, done.stderr
    return [device for device in json.loads(done.stdout) if device["device"] != "cpu"]


def check_cpu():
    """The cpu is listed with and without Vulkan, with the code that runs each kernel."""
    for environment in ({}, {"VK_DRIVER_FILES": "/nonexistent", "VK_ICD_FILENAMES": "/nonexistent"}):
        done = run("--kernels", "--device", "cpu", **environment)
        assert done.returncode == 0 and done.stdout.startswith("cpu  "), (done.stdout, done.stderr)
        products = [line.split()[4:] for line in done.stdout.splitlines() if line.split()[:1] == ["matmul"]]
        library = ["oneDNN"] if "oneDNN" in done.stdout.split("in use")[1].splitlines()[0] else ["plain"]
        assert len(products) == 4 and all(words[:1] == library for words in products), done.stdout
    done = run(VK_DRIVER_FILES="/nonexistent", VK_ICD_FILENAMES="/nonexistent")
    assert done.returncode == 0 and "NO VULKAN" in done.stdout and "cpu  " in done.stdout, (done.stdout, done.stderr)


def halves(device):
    return {k["variant"].split(",")[0] for k in device["kernels"] if "f16" in k["dtypes"] and k["variant"]}


def check_pipelines(plain):
    """Prints the numbers of every pipeline, or the extension that the driver would need. All take a minute to compile, so
    those of some kernels stand for them, except where everything is tested."""
    assert "pipelines" not in json.loads(plain.stdout)[0]
    only = "" if "REWIND_TESTS_ALL" in os.environ else "_blocks"
    done = run("--pipelines", "--json", "--device", "vulkan:0", "--only", only)
    assert done.returncode == 0, done.stderr
    device = json.loads(done.stdout)[0]
    if "pipelines_fault" in device:
        assert "the driver must describe pipelines" in device["pipelines_fault"], device["pipelines_fault"]
        return
    kernels = {k["kernel"] for k in device["kernels"] if k["variant"] and only in k["kernel"]}
    assert device["pipelines"] and all(only in p["kernel"] for p in device["pipelines"]), device["pipelines"]
    missing = kernels - {p["kernel"] for p in device["pipelines"]}
    # No call on this device uses the other family of matrix kernels.
    assert all("_subgroup" in k or "_tiled" in k or k == "matrix_pack" for k in missing), missing
    assert all(p["driver"] for p in device["pipelines"]), device["pipelines"][0]


def check_ops():
    """Lists the ops without a device."""
    done = run("--ops")
    lines = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    assert done.returncode == 0 and lines["softmax"] == ["float", "f32", "softmax"], (done.stdout, done.stderr)
    ops = {op["op"]: op for op in json.loads(run("--ops", "--json").stdout)}
    assert len(ops) == len(lines) - 1 and ops["concat"]["torch"] == "cat" and ops["argmax"]["order"] == 0, ops


def main():
    check_cpu()
    check_ops()
    first = run("--json")
    if not devices():
        print("skipped: no Vulkan device")
        return
    for device in devices():
        assert device["usable"] and device["kernels"], device
        for refused in device["refused"]:
            assert refused["fault"] and refused["feature"] not in device["features"], refused
        expected = "16-bit storage" if "16-bit storage" in device["features"] else "halves in words"
        assert halves(device) == {expected}, halves(device)
    for device in devices(REWIND_WITHOUT="f16-storage"):
        assert "16-bit storage" not in device["features"] and halves(device) == {"halves in words"}
    for device in devices(REWIND_WITHOUT="addresses"):
        assert "buffer addresses" not in device["features"]
        assert not any("addresses" in k["variant"] for k in device["kernels"])

    text = run("--kernels").stdout
    assert "self-check" in text or "REFUSED" in text, text
    assert "layer_norm" in text and "in use" in text, text
    check_pipelines(first)
    wrong = run("--device", "no such device")
    assert wrong.returncode == 1 and wrong.stderr.startswith("error: [info] no device matches"), wrong.stderr
    print("info tells of every device")


main()
