#!/usr/bin/env python3
"""Tests the report of packaging/gpu.sh, with the real programs and with failing ones. Usage: test_gpu.py GPU_SH BUILD_FOLDER"""

import json
import os
import subprocess
import sys
import tempfile

SCRIPT, BUILD = (os.path.abspath(path) for path in sys.argv[1:])
PROGRAMS = {"tools": ["info", "tune"], "tests": ["rewind_tests"], "apps": ["resnet", "bert"],
            "benchmarks": ["speed", "memory_vs_tape", "bench"]}
INFO = """#!/bin/sh
case "$*" in
  *--json*) echo '[{"name": "A Card"}]' ;;
  *--pipelines*) echo "pipelines" ;;
  *) echo "vulkan:0  A Card, ${CARD:-discrete GPU}"; echo "  in use        everything"; echo "$NOTE" ;;
esac
"""
# The program ends as its name in the folder `ends` says, after output that JSON must escape.
PROGRAM = """#!/bin/sh
printf 'says "this"\\\\ \\t \\033 \\303\\244 of %s on %s\\n' "$1" "$REWIND_DEVICE"
while [ $# -gt 0 ]; do
  if [ "$1" = --report ]; then echo '{"half": ' > "$2"; fi
  if [ "$1" = --output ]; then mkdir -p "$2"; echo '{"peak": 1}' > "$2/memory.json"; fi
  shift
done
exit "$(cat "$(dirname "$0")/../ends/$(basename "$0")" 2> /dev/null || echo 0)"
"""
# This replaces waiting for a limit of minutes.
TIMEOUT = """#!/bin/sh
case $4 in
  */rewind_tests) echo "the first lines"; exit 124 ;;
esac
shift 3
exec "$@"
"""


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, 0o755)


def run(top, *options, **variables):
    return subprocess.run([SCRIPT, *options], capture_output=True, text=True, timeout=900, cwd=top,
                          env={**os.environ, **variables})


def expect(condition, what, result):
    if not condition:
        sys.exit(f"{what}: {result.returncode}\n{result.stdout}\n{result.stderr}")


def report(folder):
    with open(folder + "/rewind-gpu.json") as file:
        text = json.load(file)
    with open(folder + "/rewind-gpu.md") as file:
        return {part["name"]: part for part in text["parts"]}, file.read()


def test_failures(top):
    """Parts that fail, hang or are missing are reported, and the others go on."""
    for folder, names in PROGRAMS.items():
        for name in names:
            write(f"{top}/fake/{folder}/{name}", INFO if name == "info" else PROGRAM)
    write(top + "/fake/ends/bert", "3")
    write(top + "/fake/ends/resnet", "139")
    write(top + "/bin/timeout", TIMEOUT)
    write(top + "/bin/python3", "#!/bin/sh\nexit 1\n")
    os.remove(top + "/fake/benchmarks/speed")
    result = run(top, "--programs", top + "/fake", "--device", "vulkan:Card", "--output", "there/it is",
                 PATH=f"{top}/bin:{os.environ['PATH']}")
    expect(result.returncode == 1 and "of 16 parts 10 failed, 1 were skipped" in result.stderr, "the sum", result)
    parts, page = report(top + "/there/it is")
    verdicts = {name: part["result"] for name, part in parts.items()}
    expect(verdicts == {"devices and self-check": "passed", "tests of kernels": "stopped after 240 s",
                        "large products, convolutions and steps": "failed (127)", "tuning": "passed",
                        "recomputation in time": "failed (139)", "kernels that take longest": "failed (139)",
                        "steps of ResNet in f32": "failed (139)",
                        "steps of ResNet in f16": "failed (139)", "steps of BERT in f32": "failed (3)",
                        "steps of BERT in f16": "failed (3)", "rates of kernels": "failed (127)",
                        "predicted memory against the device": "passed", "plain steps": "passed",
                        "host time of ops": "passed", "PyTorch": "skipped", "all tests": "stopped after 480 s"}, verdicts, result)
    expect(parts["devices and self-check"]["data"] == [{"name": "A Card"}] and
           parts["predicted memory against the device"]["data"] == {"peak": 1}, "the programs' own figures", result)
    expect(parts["steps of BERT in f32"]["data"] is None, "half a document is none", result)
    expect('says "this"\\ \t   of plain_step on Card\n' in parts["plain steps"]["text"], parts["plain steps"], result)
    expect("# Rewind on A Card, discrete GPU" in page and "| all tests | stopped after 480 s |" in page, "the page", result)
    expect(sorted(os.listdir(top + "/there/it is")) == ["rewind-gpu.json", "rewind-gpu.md"], "nothing else is left", result)


def test_choice(top):
    """Parts are chosen by name, and those for which there is no time are left out."""
    result = run(top, "--programs", top + "/fake", "--only", "tune,ops,memory", "--skip", "memory", "--output", "some")
    expect(result.returncode == 0 and "of 3 parts 0 failed" in result.stderr, "chosen parts", result)
    parts, _ = report(top + "/some")
    expect(list(parts) == ["devices and self-check", "tuning", "host time of ops"], "those parts", result)
    result = run(top, "--programs", top + "/fake", "--only", "large", CARD="CPU")
    expect(result.returncode == 0 and "1 were skipped" in result.stderr, "a CPU has no large parts", result)
    result = run(top, "--list")
    expect(result.returncode == 0 and "bert_f16 60 steps of BERT in f16" in result.stdout, "the list", result)
    write(top + "/late/date", "#!/bin/sh\nn=$(cat date.count 2> /dev/null || echo 0)\necho $((n + 100)) > date.count\n"
          "case $1 in +%s) echo $n ;; *) echo then ;; esac\n")
    result = run(top, "--programs", top + "/fake", "--only", "ops,memory", "--minutes", "5",
                 PATH=f"{top}/late:{os.environ['PATH']}")
    expect("left of 5 minutes" in report(top)[1] and "skipped" in result.stderr, "no time is left", result)


def test_no_device(top):
    result = run(top, "--programs", top + "/fake", NOTE="NO GPU IN USE: a GPU is here", CARD="CPU")
    expect(result.returncode == 1 and "a GPU is here; --device 0 goes on without it" in result.stderr, "unoffered", result)
    write(top + "/fake/tools/info", "#!/bin/sh\necho 'error: no device matches'\nexit 1\n")
    result = run(top, "--programs", top + "/fake", "--output", "none")
    expect(result.returncode == 1 and "there must be a Vulkan 1.2 device" in result.stderr and
           "mesa-vulkan-drivers" in result.stderr, "no device", result)
    write(top + "/file", "")
    for options, message in ((("--output", "file"), "must be a folder that can be written"), (("--nothing",), "no such option"),
                             (("--only", "tests,none"), "there is no part 'none'"), (("--minutes", "0"), "a whole number"),
                             (("--device",), "must be followed by a value")):
        result = run(top, *options)
        expect(result.returncode == 1 and message in result.stderr, message, result)


def test_programs(top):
    """Runs all parts of the real programs on this machine's device."""
    result = run(top, "--programs", BUILD, "--quick", "--output", "real")
    if "there must be a Vulkan 1.2 device" in result.stderr:
        print("no Vulkan device: the programs were not run")
        return
    expect(result.returncode == 0 and " 0 failed" in result.stderr, "all parts", result)
    parts, page = report(top + "/real")
    expect(all(kernel["kernel"] for device in parts["devices and self-check"]["data"] for kernel in device["kernels"]),
           "kernels", result)
    for name in ("steps of ResNet in f32", "steps of ResNet in f16", "steps of BERT in f32", "steps of BERT in f16"):
        expect(parts[name]["data"]["device"]["name"] in page and "step 2/2" in parts[name]["text"], name, result)
    expect("gemm/256x256x256-nn" in parts["rates of kernels"]["text"], "rates", result)
    expect("test cases:" in parts["all tests"]["text"], "tests", result)


def main():
    with tempfile.TemporaryDirectory() as top:
        for test in (test_failures, test_choice, test_no_device, test_programs):
            test(os.path.realpath(top))
            print(test.__name__[5:].replace("_", " "), flush=True)


main()
