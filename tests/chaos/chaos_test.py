#!/usr/bin/env python3
"""What the kill loop does with plans, times and losses. Needs nothing built."""

import contextlib
import io
import sys
import unittest
from collections import Counter

sys.dont_write_bytecode = True  # nothing of a run stays in the tree
import chaos
import job
import losses
import plan
import recovery
import report

HOSTS = ["n1", "n2", "n3", "n4"]
EXPECTED = {step: f"{10 / step:.17g}" for step in range(1, 41)}


def lines(*steps):
    """One step each second."""
    return [(float(time), step, EXPECTED[step]) for time, step in enumerate(steps)]


def event(at, host, name, reason=""):
    return {"at": at, "host": host, "event": name, "reason": reason}


class Plan(unittest.TestCase):
    def test_a_seed_gives_the_same_faults_again_and_another_one_others(self):
        self.assertEqual(plan.make_plan(7, 50, HOSTS, 2), plan.make_plan(7, 50, HOSTS, 2))
        self.assertNotEqual(plan.make_plan(7, 50, HOSTS, 2), plan.make_plan(8, 50, HOSTS, 2))

    def test_each_kind_comes_equally_often_and_lasts_as_long_as_it_may(self):
        faults = plan.make_plan(1, 10 * len(plan.KINDS), HOSTS, 2, max_seconds=4)
        self.assertEqual(set(Counter(fault.kind for fault in faults).values()), {10})
        for fault in faults:
            self.assertTrue(1 <= fault.seconds <= 4 if fault.kind in plan.LASTING else fault.seconds == 0)
            self.assertTrue(fault.hosts[0] == "n1" or not fault.kind.startswith("daemon"))
            self.assertTrue(fault.hosts[0] != "n1" or fault.kind != "host killed")

    def test_no_host_is_lost_three_times_without_a_rest(self):
        kinds = [kind for kind in plan.KINDS if kind not in plan.ENDS_THE_DAEMON]
        faults = plan.make_plan(3, 300, HOSTS, 2, kinds)
        self.assertTrue(any(fault.rest for fault in faults))
        lost = Counter()
        for fault in faults:
            if fault.rest:
                lost.clear()
            elif fault.kind in plan.LOSES_A_NODE:
                lost.update(fault.hosts)
            self.assertLessEqual(max(lost.values(), default=0), 2)


class Losses(unittest.TestCase):
    def test_steps_that_are_made_again_from_a_checkpoint_are_no_difference(self):
        self.assertEqual(losses.differences(EXPECTED, lines(*range(1, 27), *range(21, 41)), 10), [])

    def test_one_bit_is_a_difference_also_in_a_step_that_is_made_again(self):
        disturbed = lines(*range(1, 27), *range(21, 41))
        disturbed[28] = (28.0, 23, f"{10 / 23 * (1 + 2 ** -52):.17g}")
        self.assertEqual(len(losses.differences(EXPECTED, disturbed, 10)), 1)

    def test_steps_that_are_left_out_or_begin_without_a_checkpoint_are_found(self):
        self.assertEqual(len(losses.differences(EXPECTED, lines(1, 2, 4), 10)), 1)
        self.assertEqual(len(losses.differences(EXPECTED, lines(*range(1, 27), 22), 10)), 1)
        self.assertEqual(len(losses.differences({1: "1"}, [(0.0, 1, "1"), (1.0, 2, "1")], 10)), 1)


class Recovery(unittest.TestCase):
    def test_the_first_new_step_is_beyond_those_that_were_made_before(self):
        self.assertEqual(recovery.first_new_step(lines(21, 22, 23, 24, 21, 22, 23, 24, 25, 26)), 8.0)
        self.assertIsNone(recovery.first_new_step(lines(21, 22, 23, 21, 22, 23)))
        self.assertIsNone(recovery.first_new_step(lines(21)))

    def test_without_a_restart_it_is_the_one_after_the_longest_time(self):
        self.assertEqual(recovery.first_new_step([(0.0, 1, ""), (0.1, 2, ""), (5.0, 3, ""), (5.1, 4, "")]), 5.0)
        self.assertEqual(recovery.longest_gap([(0.0, 1, ""), (0.1, 2, ""), (5.1, 3, "")]), (2, 5.0))

    def test_phases_are_those_of_the_nodes_that_were_not_hit_and_fill_the_time(self):
        events = [event(13, "n1", "stopping"), event(13.5, "n1", "stopped"), event(18.5, "n2", "stopped"),
                  event(18.6, "n1", "waiting", "4 of 4 nodes are here; a pause of 1 s before the next start, because …"),
                  event(19.5, "n1", "assigned"), event(19.75, "n2", "workers_started"), event(99, "n1", "stopping")]
        phases = recovery.phases(10, 18, 24, events, [9, 11, 22, 23, 24], hit={"n2"})
        self.assertEqual(list(phases), list(recovery.PHASES))
        expected = {"detect": 3, "stop": 0.5, "absent": 4.5, "rendezvous": 0.6, "pause": 0.9, "start": 0.25, "restore": 2.25,
                    "recompute": 2}
        for name, seconds in expected.items():
            self.assertAlmostEqual(phases[name], seconds, msg=name)
        self.assertAlmostEqual(sum(phases.values()), 14)
        self.assertIsNone(recovery.phases(10, 10, 12, [], [11, 12]))


class Orphans(unittest.TestCase):
    def test_a_process_is_an_orphan_when_a_newer_one_has_its_place(self):
        old, new, other = (job.Process(pid, "n1", ["train"], {"RANK": str(rank), "LOCAL_RANK": str(rank)})
                           for pid, rank in ((1, 0), (2, 0), (3, 1)))
        guards = [job.Process(pid, host, ["ddprun-guard"], {}) for pid, host in ((4, "n1"), (5, "n2"))]

        def role(process):
            return "worker" if "RANK" in process.environment else "guard"
        self.assertEqual(job.superseded([new, other, old, *guards], role, lambda process: process.pid), [old])


class Report(unittest.TestCase):
    def test_a_percentile_is_one_of_the_samples(self):
        self.assertEqual(report.percentile([3, 1, 2], 0.99), 3)
        self.assertEqual(report.percentile(range(1, 201), 0.99), 198)

    def test_a_row_is_one_kind_and_one_outcome(self):
        kill, pause = (plan.Fault(kind, ("n2",), 0, 0.0, False, 1, 0.0) for kind in ("agent killed", "guard stopped"))
        rows = [recovery.Recovery(kill, 0, 1, seconds, 2.0, True, dict.fromkeys(recovery.PHASES, 0.5)) for seconds in (3, 4)]
        rows.append(recovery.Recovery(pause, 0, 1, 1, 0.25, False))
        text = report.table(rows, plan.KINDS).splitlines()[2:]
        self.assertEqual(len(text), 2)
        self.assertTrue(text[0].startswith("| agent killed | restarted | 2 | 0.50 / 0.50 |"), text[0])
        self.assertTrue(text[0].endswith("| 3.00 / 4.00 | 2.00 / 3.00 | 2.00 / 2.00 |"), text[0])
        self.assertTrue(text[1].endswith("|  |  | 0.25 / 0.25 |"), text[1])


class Options(unittest.TestCase):
    def test_bad_options_are_refused(self):
        for words in (["--faults", "0"], ["--only", "nothing"], ["--only", "guard killed", "--launcher", "torchrun"],
                      ["--keep", "/"], ["--seed", "x"]):
            with self.assertRaises(SystemExit) as refused, contextlib.redirect_stderr(io.StringIO()):
                chaos.parse_options(words)
            self.assertEqual(refused.exception.code, 2)


if __name__ == "__main__":
    unittest.main()
