#!/usr/bin/env python3
"""Builds once with every fault of tests/mutants/*.txt behind a switch, runs for each the tests that should
see it, and prints the faults that no test saw.

    mutate.py BUILD [N] [--only PATTERN] [--list] [--durations]
    mutate.py BUILD N --draw SEED                        N faults by the rule of drawn_faults.py, not those of the table

N takes a sample of so many, always the same ones. BUILD/mutants gets the sources and the build.
"""
import argparse
import dataclasses
import fcntl
import fnmatch
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import drawn_faults
import mutant_table as table

LEAST_KILLED, LEAST_DRAWN_KILLED = 0.95, 0.9
SLOWEST = 10


def update(path, text):
    """Writes only files that changed, so that the next build is short."""
    if os.path.exists(path):
        with open(path, "rb") as f:
            if f.read() == text:
                return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(text)


def copy_tree(root, target, changed):
    """Copies the sources of `root` to `target`, with the texts of `changed` in place of theirs."""
    command = ["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0")
    names = {n for n in names if n and os.path.lexists(os.path.join(root, n))}
    for name in sorted(names | set(changed)):
        source, path = os.path.join(root, name), os.path.join(target, name)
        if name in changed:
            update(path, changed[name].encode())
        elif os.path.islink(source):
            if not os.path.islink(path):
                os.makedirs(os.path.dirname(path), exist_ok=True)
                os.symlink(os.readlink(source), path)
        else:
            with open(source, "rb") as f:
                update(path, f.read())
            shutil.copymode(source, path)
    for folder, _, files in os.walk(target):
        for file in files:
            name = os.path.relpath(os.path.join(folder, file), target)
            if name not in names and name not in changed and not name.startswith("build/"):
                os.remove(os.path.join(target, name))


class CommandError(Exception):
    pass


def run_or_raise(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise CommandError(f"{' '.join(command)} failed:\n" + done.stdout)


def build(folder, faults):
    """Builds the test program with all faults behind switches. The build lies in the sources' folder, as with
    ./rewind build: the compiler's commands are the same, and ccache has the objects that no fault touches."""
    source = os.path.join(folder, "source")

    def read(path):
        with open(os.path.join(table.ROOT, path)) as f:
            return f.read()

    changed = table.rewritten(faults, read)
    os.makedirs(folder, exist_ok=True)
    copy_tree(table.ROOT, source, changed)
    build_folder = os.path.join(source, "build")
    if not os.path.exists(os.path.join(build_folder, "build.ninja")):
        run_or_raise(["meson", "setup", build_folder, source])
    run_or_raise(["ninja", "-k", "0", "-C", build_folder, "tests/rewind_tests"])
    return os.path.join(build_folder, "tests", "rewind_tests")


def build_drawn(folder, faults, count):
    """Builds the program with the first `count` faults that compile; returns it and them."""
    refused = set()
    while True:
        chosen = [f for f in faults if f.number not in refused][:count]
        try:
            return build(folder, chosen), chosen
        except CommandError as e:
            named = {int(n) for n in re.findall(r"REWIND_MUTANT\((\d+)u\)", str(e))} & {f.number for f in chosen}
            if not named:
                raise
            refused |= named


def lock_folder(folder):
    """Another run would build the program anew while this one runs it, so the lock is held to the end."""
    os.makedirs(folder, exist_ok=True)
    lock = open(os.path.join(folder, "lock"), "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"another run uses {folder}")
    return lock


class Runner:
    def __init__(self, program):
        self.program = program
        self.usual = {}  # seconds of tests without a fault

    def run(self, tests, number, limit):
        """Returns (the failure, or "", and seconds)."""
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="mutant-") as scratch:
            # Each fault has a cache of its own, since others must not find what it spoils. Kernels are not
            # proved first, since no test would run a kernel that the check refuses.
            settings = {"REWIND_WITHOUT": "self-check", "REWIND_CACHE": scratch, "TMPDIR": scratch,
                        "REWIND_MUTANT": str(number), "LP_NUM_THREADS": "1"}
            for name, value in (word.split("=", 1) for word in tests.environment):
                settings[name] = settings[name] + "," + value if name == "REWIND_WITHOUT" else value
            command = [self.program, "--abort-after=1"] + tests.options()
            try:
                done = subprocess.run(command, env=os.environ | settings, stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, timeout=limit, cwd=scratch)
                output, result = done.stdout.decode(errors="replace"), done.returncode
            except subprocess.TimeoutExpired:
                output, result = "", f"no end within {limit:.0f} s"
        seconds = time.monotonic() - start
        if result == 0 and "\nvalidation:" in "\n" + output:
            result = "the validation layers complain"
        if result == 0 and "test cases: 0" in " ".join(output.split()):
            result = "no test runs"
        return (f"{result}\n{output[-3000:]}" if result else ""), seconds

    def check(self, tests):
        """Checks that the tests pass without a fault."""
        wrong, self.usual[tests] = self.run(tests, 0, 1800)
        return f"without a fault, {' '.join(tests.options())} fails: {wrong}" if wrong else ""

    def kills(self, fault):
        wrong, seconds = self.run(fault.tests, fault.number, 20 + 5 * self.usual[fault.tests])
        return bool(wrong), seconds


def run_all(runner, faults, verbose):
    """Returns [(fault, killed, seconds)]; ends if tests fail without a fault."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        wrong = [w for w in pool.map(runner.check, dict.fromkeys(f.tests for f in faults)) if w]
        if wrong:
            sys.exit("\n".join(wrong))
        done, lock = [], threading.Lock()

        def one(fault):
            killed, seconds = runner.kills(fault)
            with lock:
                done.append((fault, killed, seconds))
                if sys.stdout.isatty():
                    print(f"\r{len(done)}/{len(faults)} ", end="", flush=True)
                if not killed:
                    print_survivor(fault)
                elif verbose:
                    print(f"killed: {fault.full_name} ({seconds:.1f} s)", flush=True)

        # The longest ones come first.
        list(pool.map(one, sorted(faults, key=lambda f: -runner.usual[f.tests])))
    return done


def run_drawn(runner, faults, verbose):
    """Runs the tests of each fault's room, and those of all rooms for what survives."""
    done = run_all(runner, faults, verbose)
    rest = [dataclasses.replace(fault, tests=drawn_faults.tests_of("")) for fault, killed, _ in done if not killed]
    print(f"the tests of all rooms, for {len(rest)} survivors", flush=True)
    return [row for row in done if row[1]] + run_all(runner, rest, verbose)


def print_survivor(fault):
    print(f"survives: {fault.full_name} ({fault.place})\n    {fault.file}: {fault.text} => {fault.new}\n"
          f"    {' '.join(fault.tests.environment + tuple(fault.tests.options()))}\n"
          f"    {fault.survives or 'NOT EXPLAINED'}", flush=True)


def report(done, start, is_drawn):
    """Prints the sum, and returns whether it is good enough."""
    survivors = [fault for fault, killed, _ in done if not killed]
    explained = [fault for fault in survivors if fault.survives]
    for fault, killed, _ in done:
        if killed and fault.survives:
            print(f"{fault.full_name} is killed: what {fault.place} says of its survival can go")
    killed = len(done) - len(survivors)
    print(f"{killed} of {len(done)} faults killed, {len(survivors)} survivors ({len(explained)} explained), "
          f"{(time.monotonic() - start) / 60:.1f} min")
    if is_drawn:
        return killed >= LEAST_DRAWN_KILLED * (len(done) - len(explained))
    return killed >= LEAST_KILLED * len(done) and len(explained) == len(survivors)


def choose(faults, options):
    if options.only:
        faults = [f for f in faults if any(fnmatch.fnmatch(name, options.only)
                                           for name in (f.room, f.name, f.full_name, f.file))]
    if options.n:
        faults = sorted(faults, key=lambda f: f.number)[:options.n]  # numbers are hashes of names
    if not faults:
        sys.exit("there is no such fault")
    return faults


def main():
    start = time.monotonic()
    parser = argparse.ArgumentParser(prog="rewind dev mutate", description=__doc__.splitlines()[0])
    parser.add_argument("build", help=argparse.SUPPRESS)
    parser.add_argument("n", type=int, nargs="?", metavar="N", help="run a sample of N faults, always the same ones")
    parser.add_argument("--only", metavar="PATTERN", help="only faults whose room, name or file matches")
    parser.add_argument("--draw", type=int, metavar="SEED", help="draw N faults by a rule instead")
    parser.add_argument("--list", action="store_true", help="print the faults, and run nothing")
    parser.add_argument("--verbose", action="store_true", help="print every fault when it is done")
    parser.add_argument("--durations", action="store_true", help="print the slowest ones")
    options = parser.parse_args()
    try:
        faults = table.read_tables()
        table.check_tests(faults)
        is_drawn, count = options.draw is not None, options.n or 60
        # As many again take the places of those that do not compile.
        chosen = drawn_faults.draw(faults, 2 * count, options.draw) if is_drawn else choose(faults, options)
        if options.list:
            for f in chosen:
                print(f"{f.full_name} {f.file}: {f.text} => {f.new}")
            return
        folder = os.path.join(os.path.abspath(options.build), "mutants")
        lock = lock_folder(folder)
        if is_drawn:
            program, chosen = build_drawn(folder, chosen, count)
        else:
            program = build(folder, faults)
    except (table.TableError, CommandError) as e:
        sys.exit("\n".join(str(e).splitlines()[-60:]))
    print(f"built in {(time.monotonic() - start) / 60:.1f} min", flush=True)
    done = (run_drawn if is_drawn else run_all)(Runner(program), chosen, options.verbose)
    if options.durations:
        for fault, _, seconds in sorted(done, key=lambda row: -row[2])[:SLOWEST]:
            print(f"{seconds:6.1f} s {fault.full_name}")
    is_good = report(done, start, is_drawn)
    lock.close()
    if not is_good:
        sys.exit(1)


if __name__ == "__main__":
    main()
