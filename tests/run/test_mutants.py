#!/usr/bin/env python3
"""Tests that the table of faults (tests/mutants/*.txt) fits the tree: every text occurs once."""
import unittest

import drawn_faults
import mutant_table as table


class Mutants(unittest.TestCase):
    def test_table_fits_the_tree(self):
        def read(path):
            with open(f"{table.ROOT}/{path}") as f:
                return f.read()

        faults = table.read_tables()
        table.check_tests(faults)
        self.assertGreaterEqual(len(faults), 150)
        table.rewritten(faults, read)

    def fault(self, text, new=""):
        return table.Fault("room", text, "a.cpp", text, new, table.Tests.parse("ops"))

    def test_places(self):
        source = "x = a +\n    b;\ny = a;\nz = 0;\n"
        self.assertIn("? (a - b) : (a +\n    b))", table.rewrite(source, [self.fault("a + b", "a - b")]))
        self.assertIn("{  } else { z = 0; }", table.rewrite(source, [self.fault("z = 0;")]))
        part = table.rewrite(source, [self.fault("y = {{a}};", "b")])
        self.assertRegex(part, r"y = \(REWIND_MUTANT\(\d+u\) \? \(b\) : \(a\)\);")
        both = table.rewrite(source, [self.fault("z = {{0}}", "1"), self.fault("z = {{0}};", "2")])
        self.assertEqual(both.count("REWIND_MUTANT"), 2)

    def test_what_does_not_fit(self):
        source = "x = a;\ny = a;\n"
        for faults in [[self.fault("a", "b")], [self.fault("c", "d")], [self.fault("x = a; y"), self.fault("y = a;")]]:
            with self.assertRaises(table.TableError):
                table.rewrite(source, faults)

    def test_rule_of_drawn_faults(self):
        of = lambda line: list(drawn_faults.sites(line))
        self.assertEqual(of("  if (a < b) return;"), [("if ({{a < b}}) return;", "!(a < b)"), ("if ({{a < b}}) return;", "a <= b")])
        self.assertEqual(of("  return x + y;"), [("return {{x + y}};", "x - y")])
        for line in ("  if (const auto x = f()) return;", "  static int x = a + b;", "// a + b;", "  f(a + b);"):
            self.assertEqual(of(line), [])

    def test_drawn_faults_fit_the_tree(self):
        faults = table.read_tables()
        drawn = drawn_faults.draw(faults, 40, 7)
        self.assertEqual([f.name for f in drawn], [f.name for f in drawn_faults.draw(faults, 40, 7)])
        self.assertEqual(len({f.place for f in drawn}), 40)
        table.check_tests(drawn)

    def test_tests(self):
        tests = table.Tests.parse("ops half REWIND_LIKE_GPU=1 : ops: a*,b ! *c")
        self.assertEqual(tests.environment, ("REWIND_LIKE_GPU=1",))
        self.assertEqual(tests.options(), ["--source-file=*/test_ops.cpp,*/test_half.cpp",
                                           "--test-case=ops: a*,b", "--test-case-exclude=*c"])


if __name__ == "__main__":
    unittest.main()
