#!/usr/bin/env python3
"""What bench_launch and faults.py do with figures. Needs nothing built."""

import statistics
import sys
import unittest

sys.dont_write_bytecode = True  # nothing of a run stays in the tree
import fault_job
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

    def test_a_goal_of_faults_counts_the_tries_within_its_bound(self):
        goal = goals.FaultGoal("host killed", 5, goals.SECONDS, statistics.median)
        self.assertEqual(goal.line([2, 3, 9], "0.1"), "| host killed | 3 | 2 | 3.00 s | 9.00 s | median ≤ 5 s | yes | 0.1 |")
        back = goals.FaultGoal("back", 2, goals.SECONDS)
        self.assertIn("| 1 | 0 | inf s | inf s | worst ≤ 2 s | **no** |", back.line([None], ""))
        self.assertIn("| 0 | 1 | worst ≤ 0 | **no** |", goals.FaultGoal("restarts", 0, goals.COUNT).line([0, 0, 1], ""))

    def test_steps_of_an_older_generation_beside_a_newer_one_are_found(self):
        steps = fault_job.parse_steps("1.0 1 0 n1 7\n1.1 1 1 n2 8\n2.0 2 0 n1 9\n2.1 1 1 n2 8\n1.9 1 1 n2 8\n2.2 2")
        self.assertEqual(len(steps), 5)  # without the line that is being written
        self.assertEqual(fault_job.overlaps(steps[:3]), [])
        self.assertEqual(fault_job.overlaps(steps), steps[3:])  # by the clock, and as written

    def test_records_are_read_as_the_worker_writes_them(self):
        with launchers.Records() as records:
            with open(records.path, "r+b") as file:
                file.write(launchers.HEAD.pack(1, 1) + launchers.RECORD.pack(7, 10, 20, 30))
            self.assertEqual(records.all(), [launchers.Record(7, 10, 20, 30)])


if __name__ == "__main__":
    unittest.main()
