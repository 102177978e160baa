#!/usr/bin/env python3
"""Tests programs on machines that lack something. Usage: test_commands.py REWIND BUILD_FOLDER"""

import json
import os
import re
import subprocess
import sys
import tempfile

REWIND, BUILD = (os.path.abspath(path) for path in sys.argv[1:])
SPEED = BUILD + "/benchmarks/speed"


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


def test_groups():
    """The commands are on one screen in groups; those for maintainers are on one of their own, and have no other name."""
    screen, own = run(REWIND, "help"), run(REWIND, "dev")
    expect(re.findall(r"^[A-Z]\w+$", screen.stdout, re.M) == ["Train", "Plan", "Look", "Check", "Build"], "groups", screen)
    expect(all(len(line) < 110 for line in (screen.stdout + own.stdout).splitlines()), "too wide", screen)
    commands = re.findall(r"^  ([a-z]\S*)  ", own.stdout, re.M)
    expect(own.returncode == 0 and "mutate" in commands and "mpi-check" in commands, "dev", own)
    for command in (*commands, "nonsense"):
        result = run(REWIND, command)
        expect(result.returncode == 1 and f"no such command: {command}" in result.stderr, "moved", result)
    result = run(REWIND, "dev", "nonsense")
    expect(result.returncode == 1 and "no such command: dev nonsense" in result.stderr, "dev nonsense", result)
    for command in (("test",), ("build",), ("plan",), ("dev", "fuzz"), ("dev", "docs"), ("dev", "mpi-check")):
        result = run(REWIND, *command, "--help")
        expect(result.returncode == 0 and "Usage: ./rewind" in result.stdout, command, result)


def test_driver_names():
    result = run(REWIND, "test", "--driver", "nothing")
    expect(result.returncode == 1 and "there is no driver 'nothing', there are: " in result.stderr, "driver", result)
    for name in ("lavapipe-backports", "lavapipe-forky", "radv:navi31", "all"):
        expect(f" {name}" in result.stderr, name, result)
    result = run(REWIND, "test", "nothing")
    expect(result.returncode == 1 and "--driver NAME|all" in result.stderr, "test how", result)


def test_no_driver():
    nothing = {"VK_DRIVER_FILES": "/nonexistent", "VK_ICD_FILENAMES": "/nonexistent"}
    result = run(SPEED, "--device", "vulkan", "--only", "gemm", **nothing)
    expect(result.returncode == 1 and result.stderr.startswith("error: ") and "terminate" not in result.stderr,
           "no driver", result)
    # Without a GPU, training runs on the cpu and says at its end where else it could run, unless the user asked for the cpu.
    training = (BUILD + "/apps/mnist", "--images", "20", "--epochs", "1", "--quiet")
    result = run(*training, **nothing)
    note = result.stderr.splitlines()[-1:]
    expect(result.returncode == 0 and note and note[0].startswith("note: ") and "--device vulkan" in note[0], "the cpu", result)
    result = run(*training, "--device", "cpu", **nothing)
    expect(result.returncode == 0 and "--device vulkan" not in result.stderr, "the cpu was asked for", result)
    result = run(SPEED, "--round", "0")
    expect(result.returncode == 1 and "--round" in result.stderr, "a wrong option", result)


def test_speed(folder):
    """Contenders that cannot start, lack a case or end early are named, the others have numbers; never `inf`."""
    output, script = folder + "/speed.md", os.path.dirname(REWIND) + "/benchmarks/speed.py"
    ends = f"{sys.executable} -c \"input(); print(1.5, flush=True); input()\""
    result = run(sys.executable, script, "--build", BUILD, "--device", "cpu", "--dtypes", "f32", "--python", "/nonexistent",
                 "--only", "gemm/256x,step/mlp-1-", "--rounds", "2", "--round", "0.01", "--contender", "Other=" + ends,
                 "--against", "Rewind f32", "--output", output)
    expect(result.returncode == 0 and "inf" not in result.stdout and "nan" not in result.stdout, "speed.py", result)
    with open(output[:-2] + "json") as file:
        report = json.load(file)
    # PyTorch may be missing, and is then named, too.
    yardstick = run(SPEED, "--reference", "--only", "gemm/256x256x256-nn", "--round", "0.01").returncode != 0
    missing = {"PyTorch", "Other"} | ({"OpenBLAS, memcpy"} if yardstick else set())
    expect(set(report["missing"]) == missing, report["missing"], result)
    times = {case["name"]: case["seconds"] for case in report["cases"]}
    gemm, step = times["gemm/256x256x256-nn"], times["step/mlp-1-of-100"]
    expect(len(gemm["Rewind f32"]) == 2 and min(gemm["Rewind f32"]) > 0, gemm, result)
    expect(len(step["Rewind f32"]) == 2 and set(step) <= {"Rewind f32"}, step, result)
    with open(output) as file:
        rows = [line for line in file if line.startswith("| gemm/") or line.startswith("| step/")]
    ratio = r"[\d.]+ ms, \*\*[\d.]+\*\* \([\d.]+-[\d.]+\)"
    for row in rows:
        expect(re.fullmatch(rf"\| \S+ \| [\d.]+ \| - \| ({ratio}|-) \| - \|\n", row), row, result)
    expect(len(rows) == 2 and "**not measured**, PyTorch: " in open(output).read(), rows, result)


def test_packages(folder):
    """Commands that only show something install nothing; a terminal is asked, CI is not."""
    asked, tools = folder + "/asked", folder + "/bin"
    os.mkdir(tools)
    # A Debian without any of the packages, whose apt-get cannot install them either.
    for name, script in (("dpkg-query", "exit 1"), ("apt-get", f'echo "$@" >> {asked}; exit 1'), ("sudo", 'exec "$@"')):
        with open(f"{tools}/{name}", "w") as file:
            file.write(f"#!/bin/sh\n{script}\n")
        os.chmod(f"{tools}/{name}", 0o755)

    def rewind(*command, typed=None, **variables):
        """Runs it with nobody at a terminal, or with somebody who types. `installs` has the packages asked of apt-get."""
        if os.path.exists(asked):
            os.remove(asked)
        env = {k: v for k, v in os.environ.items() if k not in ("CI", "REWIND_YES", "REWIND_NO_INSTALL")}
        env.update({"PATH": tools + ":" + env["PATH"], "REWIND_BUILD": BUILD}, **variables)
        here, there = os.openpty()
        if typed is not None:
            os.write(here, typed.encode())
        result = subprocess.run([REWIND, *command], stdin=subprocess.DEVNULL if typed is None else there, env=env,
                                capture_output=True, text=True, timeout=300)
        os.close(here)
        os.close(there)
        result.installs = open(asked).read() if os.path.exists(asked) else ""
        return result

    for command in (("resnet", "--help"), ("asr", "-h"), ("bert", "finetune", "--help"), ("plan", "mnist", "--device", "cpu")):
        for typed in (None, "y\n"):
            result = rewind(*command, typed=typed)
            expect(result.returncode == 0 and not result.installs, f"{command} installs nothing", result)
    for typed, variables, command in ((None, {}, ()), ("y\n", {}, ()), ("\n", {}, ()), ("n\n", {"REWIND_YES": "1"}, ()),
                                      ("n\n", {"CI": "true"}, ()), ("n\n", {}, ("--yes",))):
        result = rewind(*command, "resnet", typed=typed, **variables)
        expect(result.returncode == 1 and "--no-install-recommends g++ meson" in result.installs, "it installs", result)
        expect("rewind: installing Debian packages: g++ meson" in result.stderr, "it says what", result)
        expect(("install them with apt-get? [Y/n]" in result.stderr) == (typed in ("y\n", "\n")), "who is asked", result)
    for typed in ("n\n", "what\n", "\x04"):
        result = rewind("resnet", typed=typed)
        expect(result.returncode == 1 and not result.installs and "nothing is installed; by hand: apt-get install g++" in
               result.stderr and "Debian packages that are missing: g++" in result.stderr, "the answer is no", result)
    result = rewind("resnet", "--steps", "many", typed="n\n", REWIND_NO_INSTALL="1")
    expect(not result.installs and "[Y/n]" not in result.stderr and "--steps" in result.stderr, "forbidden, it asks nobody", result)


def test_later_packages(folder):
    """A build is configured again when packages come or go, and at no other time."""
    tools, build, log, here = (folder + name for name in ("/tools", "/build", "/log", "/here"))
    os.mkdir(tools)
    for name, script in (("meson", f'echo "$@" >> {log}; mkdir -p {build} && touch {build}/build.ninja'),
                         ("ninja", 'echo "ninja: no work to do."'), ("dpkg-query", f"cat {here}"), ("apt-get", "exit 1")):
        with open(f"{tools}/{name}", "w") as file:
            file.write(f"#!/bin/sh\n{script}\n")
        os.chmod(f"{tools}/{name}", 0o755)
    root = os.path.dirname(os.path.realpath(REWIND))
    first, again = [f"setup {build} {root}"], [f"configure --clearcache {build}", f"setup --reconfigure {build} {root}"]
    for packages, calls in ((("g++",), first), (("g++",), []), (("g++", "libopenmpi-dev"), again),
                            (("g++", "libopenmpi-dev"), []), (("g++",), again)):
        open(log, "w").close()
        with open(here, "w") as file:
            file.write("".join(f"installed {package}\n" for package in packages) + "not-installed chromium\n")
        result = run(REWIND, "build", PATH=tools + ":" + os.environ["PATH"], REWIND_BUILD=build, REWIND_NO_INSTALL="1")
        expect(result.returncode == 0 and open(log).read().splitlines() == calls, f"{packages}: {open(log).read()}", result)


test_temporary_folder()
test_groups()
test_driver_names()
test_no_driver()
with tempfile.TemporaryDirectory() as temporary:
    test_packages(temporary)
    test_later_packages(temporary)
    test_speed(temporary)
print("errors are lines, tables have numbers")
