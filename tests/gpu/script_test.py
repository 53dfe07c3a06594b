#!/usr/bin/env python3
"""Tests of scripts/gpu-check with programs that are stubs: time limits, verdicts, table, exit codes.

usage: script_test.py SCRIPTS
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import types
import unittest

sys.dont_write_bytecode = True
SCRIPTS = pathlib.Path(sys.argv.pop()).resolve()
sys.path.insert(0, str(SCRIPTS))

from gpu_check import checks, processes, report  # noqa: E402
from gpu_check.trial import FAILED, NOT_TRIED, PASSED, Trial  # noqa: E402

CHECK = types.SimpleNamespace(number=7, name="a check", expected="something", seconds=30)
STUB = """#!/bin/sh
case "$1" in
    --help) exit 0 ;;
    --list-test-names-only) echo "a case" ;;
    *) {body} ;;
esac
"""


def trial_of(output, dry_run=None):
    trial = Trial(CHECK, types.SimpleNamespace(dry_run=dry_run, slowness=1))
    trial.read(output)
    return trial


class Processes(unittest.TestCase):
    def setUp(self):
        processes.adopt_orphans()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.log = pathlib.Path(folder.name) / "log"
        self.log.touch()

    def run_shell(self, script, seconds):
        return processes.run(["sh", "-c", script], seconds, dict(os.environ), self.log)

    def test_a_program_that_hangs_is_ended_with_all_it_has_started(self):
        processes.TERM_SECONDS, kept = 0.2, processes.TERM_SECONDS
        self.addCleanup(setattr, processes, "TERM_SECONDS", kept)
        outcome = self.run_shell('trap "" TERM; setsid sh -c "sleep 1000; sleep 1000" & sleep 1000', 0.5)
        self.assertIn("not done after", outcome.problem)
        self.assertEqual(processes.descendants(), {})

    def test_a_process_that_is_left_behind_is_ended_and_is_a_failure(self):
        processes.KILL_SECONDS, kept = 0.5, processes.KILL_SECONDS
        self.addCleanup(setattr, processes, "KILL_SECONDS", kept)
        outcome = self.run_shell("setsid sleep 1000 & exit 0", 20)
        self.assertEqual(outcome.problem, "left processes behind: sleep")
        self.assertEqual(processes.descendants(), {})

    def test_endings(self):
        self.assertEqual(self.run_shell("echo text", 20).problem, "")
        self.assertEqual(self.run_shell("exit 3", 20).problem, "exit code 3")
        self.assertEqual(self.run_shell("kill -9 $$", 20).problem, "killed by SIGKILL")
        self.assertIn("does not start", processes.run(["/nonexistent"], 1, {}, self.log).problem)
        self.assertEqual(self.run_shell("echo only this", 20).output, "only this\n")  # not what the log has of others


class Verdicts(unittest.TestCase):
    def test_figures_are_compared_with_their_bounds(self):
        self.assertEqual(trial_of("figure submit 4.9 us <= 5\n[node1:1] figure rate 90 % >= 90\n").verdict(), (PASSED, ""))
        verdict, reason = trial_of("figure submit_median 5.1 us <= 5\n").verdict()
        self.assertEqual((verdict, reason), (FAILED, "submit median is 5.1 us, expected <= 5"))
        self.assertEqual(trial_of("figure rate 89 % >= 90\n").verdict()[0], FAILED)
        self.assertEqual(trial_of("figure submit nan us <= 5\n").verdict()[0], FAILED)
        self.assertEqual(trial_of("figure submit quick\n").verdict()[0], FAILED)

    def test_a_dry_run_shows_times_only(self):
        trial = trial_of("figure submit 400 us <= 5\n", dry_run="fakes")
        self.assertEqual(trial.verdict(), (PASSED, ""))
        self.assertEqual(trial.seen, ["submit 400 us (<= 5)"])
        self.assertFalse(trial.figures[0]["kept"])

    def test_what_was_not_tried_has_not_passed(self):
        self.assertEqual(trial_of("  SKIPPED: no device\n").verdict(), (NOT_TRIED, "no device"))
        trial = trial_of("figure submit 6 us <= 5\nnot tried: memory\n")
        self.assertEqual(trial.verdict()[0], FAILED)


class Report(unittest.TestCase):
    @staticmethod
    def rows(*verdicts):
        return [dict(report.row_not_tried(CHECK, ""), verdict=verdict, number=number) for number, verdict in enumerate(verdicts, 1)]

    def test_exit_codes(self):
        self.assertEqual(report.exit_code(self.rows(PASSED, PASSED)), 0)
        self.assertEqual(report.exit_code(self.rows(PASSED, NOT_TRIED, FAILED)), 1)
        self.assertEqual(report.exit_code(self.rows(PASSED, NOT_TRIED)), 3)
        self.assertEqual(report.exit_code([]), 3)
        self.assertEqual(report.last_line(self.rows(PASSED, NOT_TRIED, FAILED)), "gpu-check: 1 passed, 1 failed, 1 not tried")

    def test_tables_of_several_calls_become_one(self):
        with tempfile.TemporaryDirectory() as folder:
            first, second = pathlib.Path(folder) / "1.json", pathlib.Path(folder) / "2.json"
            report.write_json(first, {}, self.rows(PASSED, FAILED))
            report.write_json(second, {}, self.rows(PASSED, PASSED, NOT_TRIED)[1:])
            verdicts = [row["verdict"] for row in report.read_json([first, second])]
        self.assertEqual(verdicts, [PASSED, PASSED, NOT_TRIED])


class Calls(unittest.TestCase):
    def test_every_check_is_in_one_call_and_each_call_takes_less_than_9_minutes(self):
        self.assertEqual([one.number for one in checks.CHECKS], list(range(1, 25)))
        for call in (1, 2, 3):
            seconds = checks.START_SECONDS + sum(one.seconds for one in checks.CHECKS if one.call == call)
            self.assertLess(seconds, checks.CALL_SECONDS)


class Arguments(unittest.TestCase):
    @staticmethod
    def call(*arguments):
        return subprocess.run([SCRIPTS / "gpu-check", *arguments], capture_output=True, text=True, check=False)

    def test_a_table_of_no_file_is_wrong_usage(self):
        done = self.call("--table")
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertTrue(done.stderr.startswith("gpu-check: --table: the JSON files of earlier calls are missing"), done.stderr)

    def test_the_list_has_the_checks_that_were_chosen(self):
        self.assertEqual([line.split()[0] for line in self.call("--check", "12,4", "--list").stdout.splitlines()], ["4", "12"])
        self.assertEqual(len(self.call("--list").stdout.splitlines()), 24)


class Script(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name in ("pack/bin", "fakes", "out"):
            (self.folder / name).mkdir(parents=True)
        for name in ("ddp-bench", "ddp-check", "ddprun", "ddprun-guard", "gpu_tests", "train"):
            self.stub(name, "exit 0")

    def stub(self, name, body):
        path = self.folder / "pack/bin" / name
        path.write_text(STUB.format(body=body))
        path.chmod(0o755)

    def start(self, *arguments):
        return subprocess.Popen([SCRIPTS / "gpu-check", "--built", self.folder / "pack", "--dry-run", self.folder / "fakes", *arguments],
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=dict(os.environ, OUT=str(self.folder / "out")))

    def verdicts(self, name):
        rows = json.loads((self.folder / "out" / f"gpu-check-{name}.json").read_text())["checks"]
        return {row["number"]: row["verdict"] for row in rows}

    def test_a_failure_does_not_end_the_others(self):
        self.stub("gpu_tests", 'case "$1" in "[late-peer]") exit 1 ;; *) echo "figure time 3 s <= 2" ;; esac')
        self.stub("ddprun", 'while [ "$1" != sh ]; do shift; done; exec "$@"')
        script = self.start("--check", "8,9", "--check", "21")
        output = script.communicate()[0]
        self.assertEqual(script.returncode, 1, output)
        self.assertEqual(output.splitlines()[-1], "gpu-check: 2 passed, 1 failed, 0 not tried")
        self.assertEqual(self.verdicts("only-8-9-21"), {8: FAILED, 9: PASSED, 21: PASSED})

    def test_an_interrupted_run_leaves_its_table(self):
        started = self.folder / "started"
        self.stub("gpu_tests", f"touch {started}; sleep 1000")
        script = self.start("--check", "13,21")
        end = time.monotonic() + 15
        while not started.exists() and time.monotonic() < end:
            time.sleep(0.02)
        script.send_signal(signal.SIGTERM)
        output = script.communicate()[0]
        self.assertEqual(script.returncode, 3, output)
        self.assertIn("interrupted by SIGTERM", output)
        self.assertEqual(self.verdicts("only-13-21"), {13: NOT_TRIED, 21: NOT_TRIED})

    def test_nothing_is_tried_where_nccl_does_not_start(self):
        self.stub("ddp-bench", "echo cannot start; exit 1")
        script = self.start("2")
        output = script.communicate()[0]
        self.assertEqual(script.returncode, 1, output)
        self.assertIn("NCCL does not start here: exit code 1: cannot start", output)
        verdicts = list(self.verdicts("call-2").values())
        self.assertEqual((verdicts.count(FAILED), verdicts.count(NOT_TRIED)), (1, len(verdicts) - 1))


if __name__ == "__main__":
    unittest.main()
