#!/usr/bin/env python3
"""What bench_launch does with figures. Needs nothing built."""

import sys
import unittest

sys.dont_write_bytecode = True  # nothing of a run stays in the tree
import goals
import launchers


class Figures(unittest.TestCase):
    def test_a_ratio_compares_what_one_round_measured(self):
        self.assertEqual(goals.ratio([10, 40, 10], [10, 20, 5]), 2)

    def test_a_percentile_is_one_of_the_samples(self):
        self.assertEqual(goals.percentile([3, 1, 2], 0.99), 3)
        self.assertEqual(goals.percentile(range(1, 201), 0.99), 198)
        self.assertEqual(goals.percentile([7], 0.5), 7)

    def test_a_goal_is_met_at_its_bound(self):
        goal = goals.Goal("start", 1.2, goals.RATIO)
        self.assertTrue(goal.line(1.2).endswith("| 1.20 | yes |"))
        self.assertTrue(goal.line(1.21).endswith("| 1.21 | **no** |"))

    def test_records_are_read_as_the_worker_writes_them(self):
        with launchers.Records() as records:
            with open(records.path, "r+b") as file:
                file.write(launchers.HEAD.pack(1, 1) + launchers.RECORD.pack(7, 10, 20, 30))
            self.assertEqual(records.all(), [launchers.Record(7, 10, 20, 30)])


if __name__ == "__main__":
    unittest.main()
