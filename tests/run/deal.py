"""Runs tests on all cores: one process per core, cases dealt out one by one.

    deal.py [--jobs N] [--durations N] [--history FILE] [--most SECONDS] < PLAN

A line of PLAN is `cases NAME COMMAND...`: a test program with its filters, whose cases are dealt out, or
`command NAME COMMAND...`: one test; words are quoted as in a shell. Tests that took longest the last time, by FILE,
begin first; cases that took more than SECONDS are left out. Prints a line for each NAME when it is done, with the output of
failed tests, then the slowest tests, and at the end `PASSED FAILED` on the file descriptor 3, if that is open.
"""
import argparse
import collections
import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time

LIMIT = 600  # seconds of a case
COMMAND_LIMIT = 7200
SHOWN = 20000  # characters of output, of one that failed
MANY = 20  # of those that failed are shown

Item = collections.namedtuple("Item", "group number name")  # number 0: a command


class Group:
    """A line of the plan."""

    def __init__(self, line):
        self.kind, self.name, *self.command = shlex.split(line)
        if self.kind not in ("cases", "command") or not self.command:
            sys.exit(f"deal.py: not a line of a plan: {line}")
        self.items, self.failures, self.passed, self.seconds = [], [], 0, 0.0

    def list(self):
        if self.kind == "command":
            self.items = [Item(self, 0, self.name)]
            return
        done = subprocess.run(self.command + ["--list-test-cases", "--no-version"], capture_output=True, text=True,
                              check=False)
        rule = "=" * 79
        names = [line for line in done.stdout.splitlines() if line and not line.startswith(("[doctest]", rule))]
        self.items = [Item(self, i, name) for i, name in enumerate(names, 1)]
        if done.returncode != 0 or not names:
            self.failures.append(("listing", done.stdout + done.stderr or "no case matches"))


class Worker:
    """A process of a group's test program."""

    def __init__(self, group):
        self.group = group
        self.output = tempfile.TemporaryFile()
        reading, end = os.pipe()
        writing = fcntl.fcntl(end, fcntl.F_DUPFD, 10)  # not 3 itself, which the shell makes of it
        os.close(end)
        self.process = subprocess.Popen(["bash", "-c", f'exec 3>&{writing} {writing}>&-; exec "$@"', "bash"] + group.command
                                        + ["--worker", "--no-version"], stdin=subprocess.PIPE, stdout=self.output,
                                        stderr=subprocess.STDOUT, pass_fds=[writing], start_new_session=True)
        os.close(writing)
        self.answers = os.fdopen(reading, "rb")

    def run(self, item):
        """Returns (whether it passed, its output); the process is gone if it crashed or was too slow."""
        start = self.output.seek(0, os.SEEK_END)
        timer = threading.Timer(LIMIT, self.kill)
        timer.start()
        try:
            self.process.stdin.write(b"%d\n" % item.number)
            self.process.stdin.flush()
            answer = self.answers.readline()
        except BrokenPipeError:
            answer = b""
        late = not timer.is_alive()
        timer.cancel()
        if not answer:
            self.close()
        self.output.seek(start)
        text = self.output.read().decode(errors="replace")
        if late:
            text += f"\nkilled after {LIMIT} s"
        elif not answer:
            text += f"\nthe process ended with status {self.process.returncode}"
        bad = answer != b"done 0\n" or "\nvalidation:" in text or text.startswith("validation:")
        return not bad, text

    def kill(self):
        os.killpg(self.process.pid, signal.SIGKILL)

    def close(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        self.process.wait()

    def is_alive(self):
        return self.process.poll() is None


def run_command(group):
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(group.command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                   start_new_session=True)
        try:
            status = process.wait(COMMAND_LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            status = f"killed after {COMMAND_LIMIT} s"
        output.seek(0)
        text = output.read().decode(errors="replace")
    return status == 0, text + ("" if status == 0 else f"\nexit status {status}")


class Deal:
    def __init__(self, groups, history, most):
        self.lock, self.times = threading.Lock(), {}
        self.queue = []
        for group in groups:
            wanted = [item for item in group.items if item.number == 0 or history.get(self.key(item), 0) <= most]
            group.left_out, group.items = len(group.items) - len(wanted), wanted
            # A test that was never run may take long.
            group.items.sort(key=lambda item: -history.get(self.key(item), 1e9))
            self.queue += group.items
            group.left = len(group.items)
            if not group.left:
                self.tell(group)
        self.queue.reverse()

    @staticmethod
    def key(item):
        return f"{item.group.name}: {item.name}" if item.number else item.name

    def next(self, group):
        """Returns the next item, of the same group as long as it has some, since a new process is expensive."""
        with self.lock:
            for i in range(len(self.queue) - 1, -1, -1):
                if self.queue[i].group is group:
                    return self.queue.pop(i)
            return self.queue.pop() if self.queue else None

    def work(self):
        worker, group = None, None
        while item := self.next(group):
            if worker and (item.group is not worker.group or not worker.is_alive()):
                worker.close()
                worker = None
            group, start = item.group, time.monotonic()
            if item.number == 0:
                passed, text = run_command(group)
            else:
                worker = worker or Worker(group)
                passed, text = worker.run(item)
            self.done(item, passed, text, time.monotonic() - start)
        if worker:
            worker.close()
            if worker.process.returncode != 0:
                with self.lock:
                    group.failures.append(("the end of the process", f"exit status {worker.process.returncode}"))
                    self.tell(group)

    def done(self, item, passed, text, seconds):
        with self.lock:
            group = item.group
            self.times[self.key(item)] = round(seconds, 2)
            group.seconds += seconds
            group.left -= 1
            if passed:
                group.passed += 1
            else:
                group.failures.append((item.name, text))
            if group.left == 0:
                self.tell(group)

    @staticmethod
    def tell(group):
        left_out = f", {group.left_out} slow ones left out" if group.left_out else ""
        print(f"{group.name:<34} {group.passed} passed, {len(group.failures)} failed{left_out} ({group.seconds:.0f} s)")
        for name, text in group.failures[MANY:]:
            print(f"  {name}")
        for name, text in group.failures[:MANY]:
            print(f"  {name}:")
            print("\n".join("    " + line for line in text[-SHOWN:].splitlines()))
        sys.stdout.flush()


def read_history(path):
    try:
        with open(path, encoding="utf-8") as f:
            return json.load(f)
    except (OSError, TypeError, ValueError):
        return {}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--durations", type=int, default=0)
    parser.add_argument("--history")
    parser.add_argument("--most", type=float, default=float("inf"))
    options = parser.parse_args()
    groups = [Group(line) for line in sys.stdin if line.strip()]
    for group in groups:
        group.list()
    history = read_history(options.history)
    deal = Deal(groups, history, options.most)
    threads = [threading.Thread(target=deal.work) for _ in range(options.jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if options.history:
        with open(options.history, "w", encoding="utf-8") as f:
            json.dump(history | deal.times, f, indent=0)
    slowest = sorted(deal.times.items(), key=lambda entry: -entry[1])[:options.durations]
    for name, seconds in slowest:
        print(f"{seconds:8.1f} s  {name}")
    passed, failed = sum(g.passed for g in groups), sum(len(g.failures) for g in groups)
    try:
        os.write(3, f"{passed} {failed}\n".encode())
    except OSError:
        pass
    sys.exit(failed != 0 or passed == 0)


if __name__ == "__main__":
    main()
