#!/usr/bin/env python3
"""What the benchmarks' scripts do with figures and with programs. Needs nothing built."""

import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.dont_write_bytecode = True  # nothing of a run stays in the tree
import bench_collectives as bench
import programs
from goals import GOALS, Goal, goals_table


class Figures(unittest.TestCase):
    def test_a_cell_counts_for_the_state_around_it_alone(self):
        samples = bench.Samples()
        samples.add("ours", {"all_reduce:8:3000": (2.0, 10.0, 100, 110), "barrier:0:3000": (1.0, 2.0, 100, 480),
                             "all_reduce:65536:500": (9.0, 9.0, 480, 470)})
        self.assertEqual((samples.taken, samples.dropped), (3, 1))
        self.assertEqual(samples.by_state["near"], {"all_reduce 8": {"ours": [(2.0, 10.0)]}})
        self.assertEqual(samples.medians("far"), {"all_reduce 65536": ({"ours": 9.0}, {"ours": 1.0})})

    def test_lines_of_programs(self):
        self.assertEqual(programs.parse_figures("all_reduce.f16:8:3 1.5 2.5 100.0 400.0\n"),
                         {"all_reduce.f16:8:3": (1.5, 2.5, 100.0, 400.0)})
        with self.assertRaisesRegex(RuntimeError, "not a line of figures: all_reduce 8 1.5"):
            programs.parse_figures("all_reduce 8 1.5\n")
        with self.assertRaisesRegex(RuntimeError, "not a line of figures: a warning of the library"):
            programs.parse_figures("all_reduce:8:3 1.5 2.5 100.0 400.0\na warning of the library\n")
        with self.assertRaisesRegex(RuntimeError, "not a line of figures"):
            programs.parse_figures("\n")

    def test_one_round_that_stalls_is_a_stall(self):
        samples = bench.Samples()
        for late in (3.0, 3.0, 60.0):
            samples.add("ours", {"all_reduce:8:100000": (1.0, late, 100, 100), "barrier:0:3000": (1.0, late, 100, 100)})
        medians = samples.medians("near")
        self.assertEqual(medians["all_reduce 8 x 100000"], ({"ours": 1.0}, {"ours": 60.0}))
        self.assertEqual(medians["barrier 0"], ({"ours": 1.0}, {"ours": 3.0}))

    def test_many_calls_are_a_row_of_their_own(self):
        self.assertEqual(bench.label("all_reduce:8:3000"), "all_reduce 8")
        self.assertEqual(bench.label("all_reduce:8:100000"), "all_reduce 8 x 100000")

    def test_peers_are_asked_for_what_they_have(self):
        cells = ["all_reduce:8:1", "all_reduce:8:100000", "all_reduce.f16:8:1", "all_reduce.bf16:8:1", "gradients:0:8"]
        self.assertEqual(bench.cells_for("ours", cells), cells)
        self.assertEqual(bench.cells_for("torch", cells), [cells[0], cells[2], cells[4]])
        self.assertEqual(bench.cells_for("floor", cells), [cells[0]])

    def test_the_table_has_ratios_and_goals(self):
        samples = bench.Samples()
        samples.add("ours", {"all_reduce:26214400:12": (1000, 2000, 100, 100)})
        samples.add("openmpi", {"all_reduce:26214400:12": (5000, 5000, 100, 100)})
        samples.add("openmpi-huge", {"all_reduce:26214400:12": (2000, 2000, 100, 100)})
        text = bench.table(samples, 2)
        self.assertIn("| all_reduce 26214400 | 1000 | 5000 (5.00) | 2000 (2.00) | 2.00 | 2.0 | 1 |", text)
        self.assertIn("| 2 ranks, all_reduce 26214400: openmpi/ours ≥ 4.5 | yes: 5 |", text)
        self.assertIn("| 2 ranks, all_reduce 26214400: tuned/ours ≥ 2.3 | **no**: 2 |", text)
        self.assertIn("| 2 ranks, all_reduce 26214400: gloo/ours ≥ 13 | - |", text)


class Programs(unittest.TestCase):
    def test_what_is_not_built_is_one_message_with_the_command(self):
        here = Path(__file__).resolve().parent
        with tempfile.TemporaryDirectory() as folder:
            for script in (here / "bench_collectives.py", here.parent / "reducer" / "bench_train.py"):
                for configured in (False, True):
                    if configured:
                        (Path(folder) / "CMakeCache.txt").touch()
                    said = subprocess.run([sys.executable, str(script), "--build", folder], capture_output=True, text=True)
                    self.assertEqual((said.returncode, said.stdout), (2, ""))
                    self.assertEqual(said.stderr.count("\n"), 1, said.stderr)
                    self.assertIn(f"{script.name}: bin/ddprun, ", said.stderr)
                    command = f"cmake --build {folder} --target" if configured else "cmake --preset release && "
                    self.assertIn(command, said.stderr)
                (Path(folder) / "CMakeCache.txt").unlink()

    def test_a_program_that_cannot_be_started_is_named(self):
        with self.assertRaisesRegex(RuntimeError, "^cannot start /nowhere/program: No such file or directory$"):
            programs.run([["true"], ["/nowhere/program"]], dict(os.environ), 10)


class Goals(unittest.TestCase):
    def test_bounds_from_above_and_below(self):
        late = Goal(2, "x", "late", 20, at_most=True)
        self.assertEqual(late.value({}, {"ours": 25.0}), 25.0)
        self.assertFalse(late.met(25.0))
        self.assertTrue(late.met(20.0))
        floor = Goal(2, "x", "floor/ours", 0.9)
        self.assertEqual(floor.value({"floor": 9.0, "ours": 10.0}, {}), 0.9)
        self.assertTrue(floor.met(0.9))
        self.assertIsNone(floor.value({"ours": 10.0}, {}))

    def test_what_is_missed_stands_beside_what_bare_processes_reach(self):
        rows = {"all_reduce 65536": ({"ours": 10.0, "bare": 8.0, "openmpi": 80.0}, {}),
                "all_reduce 1048576": ({"ours": 10.0, "bare": 9.0, "openmpi": 90.0}, {}),
                "barrier 0": ({"ours": 10.0, "openmpi": 10.0}, {})}
        text = goals_table(2, {"near": rows})
        self.assertIn("all_reduce 65536: openmpi/ours ≥ 15 | **no**: 8 (bare: 10) |", text)
        self.assertIn("all_reduce 1048576: openmpi/ours ≥ 8 | yes: 9 |", text)
        self.assertIn("barrier 0: openmpi/ours ≥ 1.8 | **no**: 1 |", text)
        four = goals_table(4, {"near": {"all_reduce 8": ({"ours": 5.0, "bare": 2.6}, {})}})
        self.assertIn("all_reduce 8: µs ≤ 2.5 | **no**: 5 (bare: 2.6) |", four)

    def test_every_goal_is_of_a_cell_that_is_measured(self):
        labels = {bench.label(cell) for cell in bench.CELLS + bench.STALL_CELLS + bench.LARGE_CELLS}
        self.assertLessEqual({goal.cell for goal in GOALS}, labels)

    def test_a_goal_of_one_state_is_not_asked_of_another(self):
        rows = {cell: ({"foreign": 10.0, "openmpi": 30.0}, {}) for cell in ("all_reduce 26214400",)}
        lines = goals_table(2, {"far": rows, "near": rows}).splitlines()
        self.assertIn("| 2 ranks, all_reduce 26214400: openmpi/foreign ≥ 2.5 | - | yes: 3 |", lines)
        self.assertIn("| 2 ranks, all_reduce 26214400: openmpi/foreign ≥ 1 | yes: 3 | - |", lines)

    def test_no_goals_no_table(self):
        self.assertEqual(goals_table(3, {"near": {}}), "")
        self.assertEqual(goals_table(2, {}), "")


class Programs(unittest.TestCase):
    def run_and_leave(self, script, seconds):
        """The error, and whether what the script started in the background is gone."""
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "pid"
            with self.assertRaises(RuntimeError) as caught:
                programs.run([["sh", "-c", script, "sh", str(path)]], os.environ, seconds)
            return str(caught.exception), int(path.read_text())

    def assert_gone(self, pid):
        for _ in range(500):  # killed, it is still to be reaped by whoever adopted it
            try:
                if Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z":
                    return
            except FileNotFoundError:
                return
            time.sleep(0.02)
        self.fail(f"{pid} is still there")

    def test_nothing_is_left_after_the_time_is_up(self):
        error, pid = self.run_and_leave('sleep 600 & echo $! > "$1"; wait', 3.0)
        self.assertIn("took more than 3 s", error)
        self.assert_gone(pid)

    def test_who_does_not_end_is_killed(self):
        patience, programs.PATIENCE = programs.PATIENCE, 0.3
        try:
            error, pid = self.run_and_leave('trap "" TERM; sleep 600 & echo $! > "$1"; wait; wait', 3.0)
        finally:
            programs.PATIENCE = patience
        self.assertIn("took more than", error)
        self.assert_gone(pid)

    def test_last_words_of_a_failure(self):
        with self.assertRaisesRegex(RuntimeError, "ended with 3:\nno such luck"):
            programs.run([["sh", "-c", "echo no such luck >&2; exit 3"], ["true"]], os.environ, 10)
        self.assertEqual(programs.run([["echo", "a"], ["echo", "b"]], os.environ, 10), "a\nb\n")


if __name__ == "__main__":
    unittest.main()
