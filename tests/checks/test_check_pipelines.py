#!/usr/bin/env python3
"""Tests that check_pipelines.py finds faults that are planted into a device's report, and that the committed table is
whole. Usage: test_check_pipelines.py TABLE"""

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

TABLE = Path(sys.argv.pop())


def pipeline(constants, **numbers):
    return {"kernel": "sum", "dtypes": "f16 f32", "storage": "16-bit storage", "bindings": "descriptors",
            "constants": constants, "found": 0, "registers": 40, "spills": 0, "shared_bytes": 512,
            "instructions": 200} | numbers


DEVICE = {"name": "A GPU", "driver": "radv 26.1", "usable": True, "pipelines": [pipeline("OP=0"), pipeline("OP=1")]}
MODULE = "sum f16 f32, 16-bit storage, descriptors"


class Gate(unittest.TestCase):
    def setUp(self):
        self.device = copy.deepcopy(DEVICE)
        self.table = {"devices": {}, "modules": {"an old one, descriptors": {"other": [1, 9, 0, 0, 9]}}}
        check_pipelines.take(self.table, "gpu", DEVICE)
        self.about = self.table["devices"]["gpu"]

    def faults(self):
        return check_pipelines.compare(self.device, self.table, "gpu")[0]

    def plant(self, **numbers):
        self.device["pipelines"][1].update(numbers)

    def expect(self, *parts):
        faults = self.faults()
        self.assertEqual(len(faults), 1, faults)
        for part in parts:
            self.assertIn(part, faults[0])

    def test_the_same_passes(self):
        self.assertEqual(self.faults(), [])
        self.plant(registers=44, instructions=219)  # of 400 together
        self.assertEqual(self.faults(), [])

    def test_a_compiler_that_varies(self):
        self.about["varies"] = "by addresses"
        self.plant(registers=99, instructions=999)
        self.assertEqual(self.faults(), [])
        self.plant(spills=1)
        self.expect("1 spills, 0 are allowed")
        self.about["allowed_spills"]["another"] = [1, "known"]
        self.assertEqual(self.faults(), [])
        self.plant(spills=2)
        self.expect("2 spills, 1 are allowed")

    def test_spills(self):
        self.plant(spills=1)
        self.expect(f"{MODULE} OP=1: 1 spills, 0 are allowed")
        self.about["allowed_spills"][MODULE] = [1, "known"]
        self.assertEqual(self.faults(), [])
        self.plant(spills=2)
        self.expect("2 spills, 1 are allowed (known)")

    def test_growth(self):
        for column, value in (("registers", 45), ("instructions", 221), ("shared_bytes", 513)):
            with self.subTest(column):
                self.setUp()
                self.plant(**{column: value})
                self.expect(f"{column} grew")
                self.device["driver"] = "radv 27.0"
                self.assertEqual(self.faults(), [])
                self.assertEqual(len(check_pipelines.compare(self.device, self.table, "gpu")[1]), 2)

    def test_what_comes_and_goes(self):
        self.device["pipelines"].append(pipeline("OP=2"))
        self.expect(f"{MODULE}: 3 pipelines, the table has 2")
        del self.device["pipelines"][1:]
        self.expect(f"{MODULE}: 1 pipelines, the table has 2")
        self.device["pipelines"][0]["kernel"] = "max"
        faults = self.faults()
        self.assertEqual(len(faults), 2, faults)
        self.assertIn("max f16 f32, 16-bit storage, descriptors: not in the table", faults[0])
        self.assertIn(f"{MODULE}: in the table, and gone", faults[1])

    def test_making_it_anew(self):
        """Results that a device has no longer go, and those of other devices stay."""
        self.device["pipelines"] = [pipeline("", kernel="max", registers=7)]
        self.device["driver"] = "radv 27.0"
        self.about["allowed_spills"]["some"] = [1, "known"]
        check_pipelines.take(self.table, "gpu", self.device)
        self.assertEqual(self.table["modules"], {"an old one, descriptors": {"other": [1, 9, 0, 0, 9]},
                                                 "max f16 f32, 16-bit storage, descriptors": {"gpu": [1, 7, 0, 512, 200]}})
        self.assertEqual(self.table["devices"]["gpu"]["driver"], "radv 27.0")
        self.assertEqual(self.table["devices"]["gpu"]["allowed_spills"], {"some": [1, "known"]})

    def test_some_kernels(self):
        """With --only, other kernels are neither gone nor made anew."""
        self.device["pipelines"] = [pipeline("", kernel="max", registers=7)]
        check_pipelines.take(self.table, "gpu", self.device, "max")
        self.assertEqual(self.table["modules"][MODULE]["gpu"][0], 2)
        self.assertEqual(check_pipelines.compare(self.device, self.table, "gpu", "max")[0], [])
        self.device["pipelines"] = []
        self.assertIn("max f16 f32, 16-bit storage, descriptors: in the table, and gone; write it again",
                      check_pipelines.compare(self.device, self.table, "gpu", "max")[0])
        self.device["driver"] = "radv 27.0"
        with self.assertRaises(SystemExit):
            check_pipelines.take(self.table, "gpu", self.device, "max")

    def test_rounding_toward_zero(self):
        self.plant(found=3)
        self.expect("makes halves with rtz_f16 (3 times)")

    def test_a_driver_that_tells_nothing(self):
        for p in self.device["pipelines"]:
            p["registers"] = None
        self.expect("must tell registers")

    def test_another_device(self):
        self.device["name"] = "Another GPU"
        self.expect("the table's gpu is 'A GPU'")
        del self.table["devices"]["gpu"]
        self.expect("the table must have the device gpu")

    def test_the_program(self):
        """Writes, compares and damages tables by files, as from the command line."""
        with tempfile.TemporaryDirectory() as folder:
            told, table = Path(folder, "told.json"), Path(folder, "table.json")

            def run(*options):
                told.write_text(json.dumps([self.device]), encoding="utf-8")
                out = io.StringIO()
                with mock.patch.object(sys, "argv", ["check", str(told), str(table), "gpu", *options]), \
                        contextlib.redirect_stdout(out), self.assertRaises(SystemExit) as end:
                    check_pipelines.main()
                    sys.exit(0)
                return end.exception.code, out.getvalue()

            check_pipelines.write_table(table, {"devices": {}, "modules": {}})
            self.assertIn("must have the device", run()[1])
            self.assertEqual(run("--write")[0], 0)
            self.assertEqual(run()[0], 0)
            self.plant(spills=9)
            status, text = run()
            self.assertEqual(status, 1)
            self.assertIn("9 spills", text)


class Table(unittest.TestCase):
    def test_it_is_whole(self):
        table = json.loads(TABLE.read_text(encoding="utf-8"))
        self.assertEqual(tuple(table["columns"]), check_pipelines.COLUMNS)
        self.assertEqual(list(table["devices"]), ["arc-b580", "fd630", "fd740", "gfx1201", "h100", "iris-xe", "m1",
                                                  "navi31", "nv172", "vega10"])
        for name, about in table["devices"].items():
            with self.subTest(name):
                rows = {module: entry[name] for module, entry in table["modules"].items() if name in entry}
                self.assertGreater(sum(row[0] for row in rows.values()), 1000)
                for module, (count, registers, spills, _, instructions) in rows.items():
                    self.assertTrue(count > 0 and registers > 0 and (instructions is None or instructions > 0), module)
                    self.assertLessEqual(spills, about["allowed_spills"].get(module, [0])[0], module)
                for module, (most, reason) in about["allowed_spills"].items():
                    self.assertTrue(most > 0 and len(reason) > 20, module)
                    self.assertTrue(rows[module][2], f"{module} spills no more")


if __name__ == "__main__":
    unittest.main()
