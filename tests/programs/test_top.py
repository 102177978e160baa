#!/usr/bin/env python3
"""Runs `top` as people do: once, as JSON, on a terminal and into a pipe. Usage: test_top.py PROGRAM"""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time

PROGRAM = sys.argv[1]
HIDE, SHOW = b"\x1b[?1049h\x1b[?25l", b"\x1b[?25h\x1b[?1049l"


def run(*options, **variables):
    result = subprocess.run([PROGRAM, *options], capture_output=True, text=True, timeout=60,
                            env={**os.environ, **variables})
    return result.returncode, result.stdout, result.stderr


def expect(condition, what, *details):
    if not condition:
        sys.exit(f"{what}: {details}")


def test_once():
    code, text, errors = run()
    expect(code == 0 and "vulkan:0  " in text and "heap 0" in text, "text", code, text, errors)


def test_json():
    code, text, errors = run("--json")
    expect(code == 0, "json", code, errors)
    document = json.loads(text)
    expect(document["devices"], "no devices", document)
    for index, device in enumerate(document["devices"]):
        expect(device["index"] == index and device["name"] and device["driver"], "device", device)
        expect(all(heap["size"] > 0 for heap in device["heaps"]), "heaps", device)
        expect(any(heap["device_local"] for heap in device["heaps"]), "heaps", device)
    _, text, _ = run("--json", "--device", "vulkan:0")
    expect(len(json.loads(text)["devices"]) == 1, "--device 0", text)
    _, text, _ = run("--json", REWIND_WITHOUT="memory-budget")
    expect(json.loads(text)["devices"][0]["heaps"][0]["in_use"] is None, "no budget", text)
    _, text, _ = run(REWIND_WITHOUT="memory-budget")
    expect("unknown" in text, "no budget", text)


def test_errors():
    nothing = {"VK_DRIVER_FILES": "/nonexistent.json", "VK_ICD_FILENAMES": "/nonexistent.json"}
    for options in [(), ("--json",), ("--watch", "1")]:
        code, text, errors = run(*options, **nothing)
        expect(code == 1 and not text, "without a driver", code, text)
        expect(errors.startswith("error: ") and errors.count("\n") == 1, "one line", errors)
        expect("mesa-vulkan-drivers" in errors, "the package", errors)
    for options in [("--device", "no such device"), ("--watch", "0"), ("--watch", "nan")]:
        code, text, errors = run(*options)
        expect(code == 1 and not text and errors, "refused", options, code, text, errors)


def test_watch_pipe():
    """Without a terminal, it prints plain text again and again."""
    for options, again in [((), "vulkan:0"), (("--json",), '"devices"')]:
        child = subprocess.Popen([PROGRAM, "--watch", "0.1", *options], stdout=subprocess.PIPE)
        seen = b""
        while seen.count(again.encode()) < 3:
            piece = os.read(child.stdout.fileno(), 4096)
            expect(piece, "ended early", seen)
            seen += piece
        child.send_signal(signal.SIGINT)
        seen += child.stdout.read()
        expect(child.wait(60) == 0, "exit status", child.returncode)
        expect(b"\x1b" not in seen, "escapes in a pipe", seen)
        if options:
            documents = [json.loads(line) for line in seen.decode().splitlines()]
            expect(len(documents) >= 3, "documents", seen)


def test_watch_terminal():
    """On a terminal, it takes the second screen, and restores the first one after Ctrl-C or a SIGTERM."""
    for end in ["Ctrl-C", "SIGTERM"]:
        pid, terminal = pty.fork()
        if pid == 0:
            os.execv(PROGRAM, [PROGRAM, "--watch", "0.1"])
        seen, deadline = b"", time.monotonic() + 60
        ended = False
        while time.monotonic() < deadline:
            ready, _, _ = select.select([terminal], [], [], 1)
            if not ready:
                continue
            try:
                seen += os.read(terminal, 4096)
            except OSError:  # the other side is closed
                break
            if not ended and seen.count(b"\x1b[H") >= 3:
                ended = True
                if end == "Ctrl-C":
                    os.write(terminal, b"\x03")
                else:
                    os.kill(pid, signal.SIGTERM)
        _, status = os.waitpid(pid, 0)
        expect(os.waitstatus_to_exitcode(status) == 0, end, status, seen)
        expect(seen.startswith(HIDE) and seen.endswith(SHOW), "terminal not restored", seen)


for name, test in list(globals().items()):
    if name.startswith("test_"):
        test()
print("top works")
