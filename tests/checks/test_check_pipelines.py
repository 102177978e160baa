#!/usr/bin/env python3
"""Tests that check_pipelines.py finds faults that are planted into a device's report, and that the committed tables
are whole. Usage: test_check_pipelines.py TABLES"""

import contextlib
import copy
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import check_pipelines

TABLES = Path(sys.argv.pop())


def pipeline(constants, **numbers):
    return {"kernel": "sum", "dtypes": "f16 f32", "storage": "16-bit storage", "bindings": "descriptors",
            "constants": constants, "found": 0, "registers": 40, "spills": 0, "shared_bytes": 512,
            "instructions": 200} | numbers


DEVICE = {"name": "A GPU", "driver": "radv 26.1", "usable": True, "pipelines": [pipeline("OP=0"), pipeline("OP=1")]}
MODULE = "sum f16 f32, 16-bit storage, descriptors"


class Gate(unittest.TestCase):
    def setUp(self):
        self.device = copy.deepcopy(DEVICE)
        self.table = {"device": DEVICE["name"], "driver": DEVICE["driver"], "allowed_spills": {},
                      "pipelines": check_pipelines.table_of(DEVICE)}

    def faults(self):
        return check_pipelines.compare(self.device, self.table)[0]

    def plant(self, **numbers):
        self.device["pipelines"][1].update(numbers)

    def expect(self, *parts):
        faults = self.faults()
        self.assertEqual(len(faults), 1, faults)
        for part in parts:
            self.assertIn(part, faults[0])

    def test_the_same_passes(self):
        self.assertEqual(self.faults(), [])
        self.plant(registers=44, instructions=218)
        self.assertEqual(self.faults(), [])

    def test_a_compiler_that_varies(self):
        self.table["varies"] = "by addresses"
        self.plant(registers=99, instructions=999)
        self.assertEqual(self.faults(), [])
        self.plant(spills=1)
        self.expect("1 spills, 0 are allowed")
        self.table["allowed_spills"]["another"] = [1, "known"]
        self.assertEqual(self.faults(), [])
        self.plant(spills=2)
        self.expect("2 spills, 1 are allowed")

    def test_spills(self):
        self.plant(spills=1)
        self.expect(f"{MODULE} OP=1: 1 spills, 0 are allowed")
        self.table["allowed_spills"][MODULE] = [1, "known"]
        self.assertEqual(self.faults(), [])
        self.plant(spills=2)
        self.expect("2 spills, 1 are allowed (known)")

    def test_growth(self):
        for column, value in (("registers", 45), ("instructions", 219), ("shared_bytes", 513)):
            with self.subTest(column):
                self.setUp()
                self.plant(**{column: value})
                self.expect(f"{column} grew")
                self.device["driver"] = "radv 27.0"
                self.assertEqual(self.faults(), [])
                self.assertEqual(len(check_pipelines.compare(self.device, self.table)[1]), 2)

    def test_what_comes_and_goes(self):
        self.device["pipelines"].append(pipeline("OP=2"))
        self.expect("OP=2: not in the table")
        del self.device["pipelines"][1:]
        self.expect("OP=1: in the table, and gone")

    def test_rounding_toward_zero(self):
        self.plant(found=3)
        self.expect("makes halves with rtz_f16 (3 times)")

    def test_a_driver_that_tells_nothing(self):
        for p in self.device["pipelines"]:
            p["registers"] = None
        self.expect("must tell registers")

    def test_another_device(self):
        self.device["name"] = "Another GPU"
        self.expect("the table is of 'A GPU'")

    def test_the_program(self):
        """Writes, compares and damages tables by files, as from the command line."""
        with tempfile.TemporaryDirectory() as folder:
            told, table = Path(folder, "told.json"), Path(folder, "table.json")

            def run(*options):
                told.write_text(json.dumps([self.device]), encoding="utf-8")
                out = io.StringIO()
                with mock.patch.object(sys, "argv", ["check", str(told), str(table), *options]), \
                        contextlib.redirect_stdout(out), self.assertRaises(SystemExit) as end:
                    check_pipelines.main()
                    sys.exit(0)
                return end.exception.code, out.getvalue()

            self.assertIn("no table", run()[0])
            self.assertEqual(run("--write")[0], 0)
            self.assertEqual(run()[0], 0)
            self.plant(spills=9)
            status, text = run()
            self.assertEqual(status, 1)
            self.assertIn("9 spills", text)


class Tables(unittest.TestCase):
    def test_they_are_whole(self):
        files = sorted(TABLES.glob("*.json"))
        self.assertEqual([f.stem for f in files], ["arc-a770", "arc-b580", "fd630", "fd740", "fd750", "gfx1201",
                                                   "h100", "iris-xe", "m1", "navi21", "navi31", "nv162", "nv172",
                                                   "vega10"])
        for file in files:
            with self.subTest(file.name):
                table = json.loads(file.read_text(encoding="utf-8"))
                rows = [(module, row) for module, entry in table["pipelines"].items() for row in entry.values()]
                self.assertGreater(len(rows), 1000)
                for module, row in rows:
                    self.assertTrue(row[0] > 0 and (row[3] is None or row[3] > 0), (module, row))
                    self.assertLessEqual(row[1], table["allowed_spills"].get(module, [0])[0], module)
                for module, (most, reason) in table["allowed_spills"].items():
                    self.assertTrue(most > 0 and len(reason) > 20, module)
                    self.assertTrue(any(row[1] for m, row in rows if m == module), f"{module} spills no more")


if __name__ == "__main__":
    unittest.main()
