#!/usr/bin/env python3
"""Compares the formulas of benchmarks/scaling.py with sums that are done by hand. Usage: test_scaling.py BENCHMARKS"""

import math
import sys
import unittest

sys.path.insert(0, sys.argv.pop())
import scaling  # noqa: E402
from scaling import MIB, Link, Point, Step, step_seconds  # noqa: E402

LINK = Link(alpha=1e-3, beta=1e-6)
FREE = Link(0, 0)


class Messages(unittest.TestCase):
    def test_by_hand(self):
        # Four ranks, 400 bytes: three messages of 100 bytes.
        self.assertAlmostEqual(scaling.all_to_all(4, 400, LINK), 3e-3 + 300e-6)
        self.assertAlmostEqual(scaling.all_gather_ring(4, 400, LINK), 3e-3 + 300e-6)
        self.assertAlmostEqual(scaling.all_gather_doubling(4, 400, LINK), 2e-3 + 300e-6)
        self.assertAlmostEqual(scaling.all_reduce(4, 400, LINK), 4e-3 + 600e-6)
        self.assertAlmostEqual(Link.of(100).beta * 12.5e9, 1)

    def test_alone(self):
        for message in (scaling.all_to_all, scaling.all_gather_ring, scaling.all_gather_doubling, scaling.all_reduce):
            self.assertEqual(message(1, 400, LINK), 0)

    def test_no_free_lunch(self):
        # The messages of all ranks have the bytes of one all-reduce, whatever the order.
        link = Link(0, 1e-9)
        for ranks in (2, 8, 1024):
            both = scaling.all_to_all(ranks, 1e9, link) + scaling.all_gather_ring(ranks, 1e9, link)
            self.assertAlmostEqual(both, scaling.all_reduce(ranks, 1e9, link))


class Steps(unittest.TestCase):
    step = Step(seconds=0.3, gradient_bytes=20 * MIB, bucket_bytes=8 * MIB, host=math.inf)

    def test_buckets(self):
        self.assertEqual(self.step.buckets, [8 * MIB, 8 * MIB, 4 * MIB])
        self.assertEqual(Step(1, 16 * MIB).buckets, [8 * MIB, 8 * MIB])

    def test_no_messages(self):
        self.assertEqual(step_seconds(self.step, 1, LINK), 0.3)
        self.assertAlmostEqual(step_seconds(self.step, 64, FREE), 0.3)
        self.assertAlmostEqual(scaling.efficiency(self.step, 64, FREE), 1)

    def test_hidden_but_for_the_last(self):
        # 10 ms per bucket on two ranks, which become complete at 180, 260 and 300 ms.
        link = Link(10e-3, 0)
        self.assertAlmostEqual(step_seconds(self.step, 2, link), 0.3 + 10e-3 + 30e-3)
        self.assertAlmostEqual(step_seconds(self.step, 2, link, overlaps=False), 0.3 + 30e-3 + 30e-3)

    def test_a_queue_that_is_longer_than_backward(self):
        # 200 ms each, from the first one on without a pause.
        self.assertAlmostEqual(step_seconds(self.step, 2, Link(0.2, 0)), 0.18 + 3 * 0.2 + 3 * 0.2)

    def test_copies_hide_behind_messages_or_the_other_way(self):
        slow = Step(0.3, 20 * MIB, 8 * MIB, host=8 * MIB / 20e-3)  # 20, 20 and 10 ms
        self.assertAlmostEqual(step_seconds(slow, 2, Link(30e-3, 0)), step_seconds(self.step, 2, Link(30e-3, 0)))
        self.assertAlmostEqual(step_seconds(slow, 2, FREE), 0.3 + 10e-3 + 50e-3)

    def test_order(self):
        for ranks in (2, 8, 1024):
            for gbit in (10, 100, 400):
                link = Link.of(gbit)
                hidden, late = (step_seconds(self.step, ranks, link, overlaps=o) for o in (True, False))
                tree = step_seconds(self.step, ranks, link, gather=scaling.all_gather_doubling)
                self.assertLessEqual(tree, hidden)
                self.assertLess(hidden, late)
            self.assertLess(step_seconds(self.step, ranks, Link.of(100)), step_seconds(self.step, ranks, Link.of(10)))


class Fit(unittest.TestCase):
    def test_finds_what_made_the_points(self):
        made = Link(3e-5, 2e-9)
        points = [(n, size, n * made.alpha + size * made.beta) for n, size in ((1, 1e6), (20, 1e6), (4, 5e7))]
        found = scaling.fit_link(points)
        self.assertAlmostEqual(found.alpha / made.alpha, 1)
        self.assertAlmostEqual(found.beta / made.beta, 1)

    def test_nothing_is_negative(self):
        self.assertEqual(scaling.fit_link([(1, 1e6, 2e-3), (30, 1e6, 1e-3)]).alpha, 0)
        self.assertEqual(scaling.fit_link([(1, 1e6, 1e-3), (1, 9e6, 5e-4)]).beta, 0)

    def test_a_row_of_the_benchmark(self):
        point = Point.parse("| mini | 2 | none | f32 | 86 | 412.5 | 21.30 | 0.0 | 55.0 | 11.0 | 80 % | 0.0 | 40.2 | 99.00 |", 512 << 10)
        self.assertEqual((point.ranks, point.bucket_bytes, point.buckets), (2, 512 << 10, 86))
        self.assertEqual((point.seconds, point.message_seconds, point.update_seconds), (0.4125, 0.055, 0.0402))
        self.assertAlmostEqual(point.sent_bytes, 21.3 * MIB)


if __name__ == "__main__":
    unittest.main()
