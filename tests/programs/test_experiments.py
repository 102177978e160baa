#!/usr/bin/env python3
"""Tests tables and pictures of benchmarks/experiments.py from existing reports, and its notes about missing data.
Usage: test_experiments.py BENCHMARKS"""

import json
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ET
from pathlib import Path

BENCHMARKS = Path(sys.argv.pop())
SVG = "{http://www.w3.org/2000/svg}"


def run(folder, *options):
    done = subprocess.run([sys.executable, BENCHMARKS / "experiments.py", *options, "--reports", folder, "--results",
                           folder], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


class Experiments(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name)

    def test_speech(self):
        for dtype, rates in (("f32", (0.03, 0.05)), ("f16", (0.02, 0.06))):
            for seed, rate in enumerate(rates, 1):
                report = {"history": [{"step": 10, "loss": 2.0 * seed}, {"step": 20, "loss": 1.0 * seed}],
                          "word_error_rate": rate}
                (self.folder / f"speech-{dtype}-{seed}.json").write_text(json.dumps(report))
        status, text, errors = run(self.folder, "speech", "--seeds", "2")
        self.assertEqual((status, errors), (0, ""))
        self.assertIn("| f32 | 1.500 (1.000 to 2.000) | 4.00 (3.00 to 5.00) | 3.00, 5.00 |", text)
        self.assertIn("| f16 | 1.500 (1.000 to 2.000) | 4.00 (2.00 to 6.00) | 2.00, 6.00 |", text)
        root = ET.parse(self.folder / "experiment-speech.svg").getroot()
        curves, dots = root.findall(SVG + "g")
        self.assertEqual([len(line.get("points").split()) for line in curves.findall(SVG + "polyline")], [2, 2])
        self.assertEqual([len(band.get("points").split()) for band in curves.findall(SVG + "polygon")], [4, 4])
        self.assertEqual(len(dots.findall(SVG + "circle")), 4)
        worst, best = (min(dots.findall(SVG + "circle"), key=lambda c, s=sign: s * float(c.get("cy"))) for sign in (1, -1))
        self.assertEqual(worst.get("fill"), best.get("fill"))  # f16 has the largest and the least rate
        self.assertIn("f16", [text.text for text in root.findall(SVG + "text")])

    def test_mnist(self):
        runs = [{"name": name, "history": [{"train_loss": 0.5, "test_accuracy": 0.9}, {"train_loss": 0.25, "test_accuracy": 0.95}]}
                for name in ("single", "accumulate", "batch")]
        (self.folder / "mnist.json").write_text(json.dumps({"runs": runs}))
        status, text, _ = run(self.folder, "mnist")
        self.assertEqual(status, 0)
        self.assertIn("| 2 | 0.2500, 95.00 % | 0.2500, 95.00 % | 0.2500, 95.00 % |", text)
        ET.parse(self.folder / "experiment-mnist.svg")

    def test_step_memory(self):
        for way, (peak, flops) in enumerate(((40, 100), (20, 133), (10, 119))):
            for turn, ms in enumerate((300, 200)):
                live = [{"name": "live bytes", "ts": 1e3 * (5 + at), "args": {"activations": mib * 2**20, "data": 0}}
                        for at, mib in ((0, 1), (ms / 2, peak), (ms, 1))]
                kernels = [{"name": "gemm", "cat": "kernel", "args": {"flops": flops / 2}}] * 2
                (self.folder / f"step-memory-{way}-{turn}.json").write_text(json.dumps({"traceEvents": live + kernels}))
        status, text, errors = run(self.folder, "step-memory", "--seeds", "2")
        self.assertEqual((status, errors), (0, ""))
        self.assertIn("| plain | 40 MiB | +0 % FLOPs | 200 ms, +0 % |", text)
        self.assertIn("| a budget (--memory-budget 200MiB) | 10 MiB | +19 % FLOPs | 200 ms, +0 % |", text)
        panel = ET.parse(self.folder / "experiment-step-memory.svg").getroot().find(SVG + "g")
        self.assertEqual([len(line.get("points").split()) for line in panel.findall(SVG + "polyline")], [3, 3, 3])
        numbers = [text.text for text in panel.findall(SVG + "text")]
        self.assertEqual([n for n in numbers if n.isdigit()], ["0", "10", "20", "30", "40", "0", "50", "100", "150", "200"])

    def test_defaults(self):
        """Tasks whose data are missing are rows that say so, and so is a task without a peer; the worst one is named."""
        shared = {"lr": 0.025, "updates": 90, "train_seconds": 12.4}
        for number, (ours, theirs) in {0: (0.99, 97), 1: (0.90, 92.5), 2: (1, None), 3: (0.5, 50), 11: (0.2, None)}.items():
            report = {**shared, "test_accuracy": ours, "word_error_rate": ours}
            path = self.folder / f"defaults-{number}.json"
            path.write_text(json.dumps(report))
            path.with_suffix(".command.json").write_text("[]")
            if theirs is not None:
                path.with_suffix(".peer.json").write_text(json.dumps({"points": theirs}))
        status, text, errors = run(self.folder, "defaults", "--data", self.folder / "none")
        self.assertEqual((status, errors), (0, ""))
        self.assertIn("| two shapes, 120 photographs | 99.0 | 97.0 | +2.0 | 0.025 | 90 | 12 |", text)
        self.assertIn("| ten shapes, 400 photographs | 100.0 |  |  | 0.025 | 90 | 12 |", text)
        self.assertIn("| spoken digits, 600 strings | 80.0 |", text)
        self.assertEqual(text.count(f"skipped: there is no {self.folder}/none/"), 7)
        self.assertIn("The worst is -2.5 points; the bar is -2.", text)

    def test_missing_data(self):
        for name, what in (("mnist", "mnist"), ("accumulation", "sst2"), ("cifar", "cifar-10-batches-bin")):
            status, text, errors = run(self.folder, name, "--data", self.folder / "none")
            self.assertEqual((status, errors), (0, ""))
            self.assertTrue(text.startswith(f"skipped: there is no {self.folder}/none/{what}"), text)


unittest.main()
