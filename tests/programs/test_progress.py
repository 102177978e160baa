#!/usr/bin/env python3
"""Tests what people see of a training: a bar on a terminal, lines elsewhere, the page of --report in a browser.

Usage: test_progress.py FOLDER_OF_THE_PROGRAMS [NAME_OF_A_TEST...]"""

import fcntl
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

from program_data import EXAMPLES, RESNET, expect, run, write_data

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "checks"))
from check_timeline import BROWSERS, NO_ERROR, browse

ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
TRAIN = (*RESNET, "--steps")
PLAIN = {**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8", "NO_COLOR": ""}


def resize(terminal, columns):
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))


def at_terminal(folder, columns, steps, *options, then=None, env={}):
    """Returns everything that a program writes to a terminal, which has `then` columns from the first bar on."""
    keeper, terminal = pty.openpty()
    resize(terminal, columns)
    child = subprocess.Popen([EXAMPLES / TRAIN[0], *TRAIN[1:], str(steps), *options], cwd=folder, stdin=terminal,
                             stdout=terminal, stderr=terminal, env={**PLAIN, **env})
    os.close(terminal)
    text = b""
    while True:
        try:
            more = os.read(keeper, 65536)
        except OSError:  # the program has ended
            more = b""
        if not more:
            break
        text += more
        if then and b"step 1/" in text:
            os.kill(child.pid, signal.SIGSTOP)
            resize(keeper, then)
            os.kill(child.pid, signal.SIGCONT)
            then = None
    os.close(keeper)
    expect(child.wait() == 0, "a training at a terminal", text.decode(errors="replace"))
    return text.decode()


def bars(text):
    """Returns the states of the line that is redrawn, without colours."""
    return [ESCAPE.sub("", bar.split("\x1b[K")[0]) for bar in re.split(r"\r(?!\n)", text)
            if re.search(r"step \d+/", bar)]


def test_widths(folder):
    """A bar never wraps; the narrower the terminal, the less of it."""
    for columns in (24, 50, 90, 160):
        shown = bars(at_terminal(folder, columns, 6))
        expect(shown and all(len(bar) < columns for bar in shown), f"{columns} columns", shown)
        expect("step 6/6" in shown[-1], "the last step", shown)
    for text in ("100 % ━━", "loss", "accuracy", "images/s", "now", "peak", " in "):
        expect(text in shown[-1], text, shown)


def test_resized(folder):
    """After a terminal has become narrower, lines fit again."""
    shown = bars(at_terminal(folder, 160, 300, then=40))
    expect(len(shown) > 1 and len(shown[0]) > 80 and len(shown[-1]) < 40, "resized", shown)


def test_colours(folder):
    """The bar has colours unless NO_COLOR is set, and is ASCII if the locale is not UTF-8; a dumb terminal gets lines."""
    colour = re.compile(r"\x1b\[[0-9;]*m")
    expect(colour.search(at_terminal(folder, 90, 4)), "colours")
    text = at_terminal(folder, 90, 4, env={"NO_COLOR": "1", "LC_ALL": "C"})
    expect(not colour.search(text) and "100 % ###" in text and text.isascii(), "no colours", text)
    text = at_terminal(folder, 90, 4, env={"TERM": "dumb"})
    expect("\x1b" not in text and "step 4/4" in text, "a dumb terminal", text)


def test_lines(folder):
    """A pipe (`| tee`) gets at most ten lines, and nothing but text."""
    out, errors = run(folder, *TRAIN, "25", env=PLAIN)
    lines = re.findall(r"^step (\d+)/25  loss .*$", out, re.M)
    expect(len(lines) == 10 and lines[-1] == "25" and "\x1b" not in out + errors and "\r" not in out, "lines", out)
    for text in ("\nTrained  25 steps in ", "\nMemory   "):
        expect(text in out, "the sum", out)
    out, _ = run(folder, *TRAIN, "25", "--quiet")
    expect("step " not in out and "test accuracy" in out, "quiet", out)


def test_json_lines(folder):
    """Standard output is for a program; texts for people go to standard error."""
    out, errors = run(folder, *TRAIN, "250", "--json-lines")
    lines = [json.loads(line) for line in out.splitlines()]
    steps, report = lines[:-1], lines[-1]["report"]
    expect(len(steps) == 125 and steps[-1]["step"] == 250 and steps[-1]["seconds_left"] == 0, "every second step", out)
    expect(all({"loss", "accuracy", "rate", "memory", "peak", "seconds"} <= step.keys() for step in steps), "figures", out)
    expect([step["loss"] for step in steps] == [row["loss"] for row in report["history"]], "the report", out)
    expect("test accuracy" in errors and "step 1/" not in errors, "for people", errors)
    _, errors = run(folder, *TRAIN, "2", "--json-lines", "--quiet", status=1)
    expect("excludes" in errors, "one of them", errors)


def test_report(folder):
    """The report is a folder with a page, its figures and the memory of an update; no script fails, and it fits a phone."""
    run(folder, *TRAIN, "30", "--report", "some where/report", "--ema", "0.5")
    report = folder / "some where" / "report"
    figures = json.loads((report / "report.json").read_text())
    expect(len(figures["history"]) == 30 and "--report 'some where/report'" in figures["command"], "figures", figures)
    expect(max(figures["device"]["timeline"]) == figures["device"]["steps_peak"], "the traced update has the peak", figures)
    page = (report / "index.html").read_text()
    expect(page.count("<svg") == 4 and "http" not in page and "memory.html" in page, "the page", page)
    run(folder, "resnet", "--plan", "--device", "cpu", "--report", "plan")
    expect("Plan of" in (folder / "plan/index.html").read_text() and (folder / "plan/memory.html").exists(), "a plan's page")
    run(folder, *TRAIN, "2", "--report", "alone.json")
    expect(isinstance(json.loads((folder / "alone.json").read_text()), dict), "a file alone")
    browser = next((b for b in BROWSERS if shutil.which(b)), None)
    if not browser:
        return print("no Chromium here: the pages are not opened")
    expect(NO_ERROR in browse(browser, folder, f"file://{report}/memory.html", "--dump-dom"), "a script fails")
    wide = "<script>document.title = document.documentElement.scrollWidth <= innerWidth ? 'fits' : 'too wide'</script></body>"
    probe = report / "probe.html"
    probe.write_text(page.replace("</body>", wide))
    for size in ("1200,900", "500,900"):  # a window of Chromium is no narrower
        dom = browse(browser, folder, f"file://{probe}", "--dump-dom", size=size)
        expect("<title>fits</title>" in dom, size, dom[:500])


for name, test in list(globals().items()):
    if name.startswith("test_") and (len(sys.argv) == 2 or name in sys.argv):
        with tempfile.TemporaryDirectory() as path:
            write_data(Path(path))
            test(Path(path))
print("progress and reports are as people know them")
