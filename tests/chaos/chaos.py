#!/usr/bin/env python3
"""Random faults in one long training job on virtual hosts, by seed: what is killed, stopped or cut off, and when.

The job first runs undisturbed. Then each step of the disturbed job is compared with it bit by bit, processes that outlive their
group are counted, and each recovery is timed by phase. Exit code 1 if a step differs, an orphan is found, or a fault is not
survived as documented; 77 without the tools for virtual hosts (DDPRUN_CLUSTER_TOOLS), or if not root.

    tests/chaos/chaos.py --build build/release --seed 1 --faults 20
    tests/chaos/chaos.py --launcher torchrun --trainer gloo --workers 1 --faults 100
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True  # nothing of a run stays in the tree
sys.path.append(str(Path(__file__).resolve().parent.parent / "bench" / "collectives"))
import launchers  # noqa: E402
import programs  # noqa: E402
from injector import inject  # noqa: E402
from job import DidNotRecover, Job, kill  # noqa: E402
from losses import differences  # noqa: E402
from plan import ENDS_THE_DAEMON, GO_ON, LOSES_A_NODE, make_plan  # noqa: E402
from recovery import Recovery, first_new_step, longest_gap, phases  # noqa: E402
from report import table  # noqa: E402
from virtual_hosts import Hosts, require_tool  # noqa: E402

REST = 61.0  # seconds of life after which earlier losses of hosts no longer count (docs/design/002)
SETTLED = 1.0  # seconds of steps after a fault: what follows from it has begun by then
ORPHAN_LIMIT = 2.0  # seconds in which every process of an older group has to be gone
STEPS_PER_SECOND = 15  # at the default --rate, at most
END_LIMIT = 600.0


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=Path("build/release"), help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--only", nargs="+", metavar="KIND", help="kinds of faults, such as 'agent killed'; default: all")
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2, help="on each host")
    parser.add_argument("--max-seconds", type=float, default=10, help="of faults that last, which last 1 s at least")
    parser.add_argument("--steps-per-fault", type=int, default=60, help="the length of the job; default: %(default)s")
    parser.add_argument("--rate", default="50mbit", help="of each host's network beside faults: it makes the steps slow at "
                        "little CPU time; default: %(default)s")
    parser.add_argument("--checkpoint-every", type=int, default=10)
    parser.add_argument("--limit", type=float, default=150, help="seconds until a job that does not recover is ended by force")
    parser.add_argument("--launcher", choices=launchers.LAUNCHERS, default="ddprun")
    parser.add_argument("--trainer", choices=launchers.TRAINERS, default="train")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="write logs and events there, and keep them")
    options = parser.parse_args()
    options.build = options.build.resolve()
    return options


class Run:
    def __init__(self, options, hosts, directory):
        self.options, self.hosts, self.directory = options, hosts, directory
        self.launcher_type = launchers.LAUNCHERS[options.launcher]
        self.kinds = [kind for kind in self.launcher_type.kinds if not options.only or kind in options.only]
        self.plan = make_plan(options.seed, options.faults, hosts.names, options.workers, self.kinds,
                              self.launcher_type.agents(hosts.names), options.max_seconds)
        rests = sum(fault.rest for fault in self.plan)
        options.steps = options.faults * options.steps_per_fault + int(rests * REST * STEPS_PER_SECOND)
        self.problems = []
        self.recoveries = []

    def start(self, name):
        folder = self.directory / name
        folder.mkdir(parents=True)
        launcher = self.launcher_type(self.options.build, folder)
        trainer = launchers.TRAINERS[self.options.trainer](self.options.build, folder, self.options)
        return Job(self.hosts, launcher, trainer, self.options.workers, folder)

    def undisturbed(self):
        with self.start("undisturbed") as job:
            self.wait_for_end(job)
            if job.ends:
                raise RuntimeError(f"the undisturbed job was disturbed: {job.ends}\n{log_of(job)}")
            lines = list(job.losses.lines)
        if [step for _, step, _ in lines] != list(range(1, self.options.steps + 1)):
            raise RuntimeError(f"the undisturbed job has {len(lines)} steps, not 1 to {self.options.steps}:\n{log_of(job)}")
        print(f"undisturbed: {len(lines)} steps in {lines[-1][0] - lines[0][0]:.0f} s, last loss {lines[-1][2]}", flush=True)
        return {step: loss for _, step, loss in lines}

    def disturbed(self, expected):
        with self.start("disturbed") as job:
            try:
                self.hosts.set_rate(self.options.rate)
                for number, fault in enumerate(self.plan, 1):
                    self.one_fault(job, number, fault)
                self.hosts.set_rate("off")
                self.wait_for_end(job)
                if len(job.succeeded) < len(self.hosts.names):
                    self.problems.append(f"a launcher ended after the last fault: {job.ends[-1]}\n{log_of(job)}")
                self.check_nothing_is_left(job)
            finally:
                self.compare(expected, job.losses.lines)

    def compare(self, expected, lines):
        found = differences(expected, lines, self.options.checkpoint_every)
        made = {step for _, step, _ in lines}
        if missing := len(expected.keys() - made):
            self.problems.append(f"{missing} of {len(expected)} steps were not made")
        self.problems += found[:20] + ([f"and {len(found) - 20} more"] if len(found) > 20 else [])
        print(f"\n{len(made)} steps, {len(lines) - len(made)} of them made again: {len(found)} differences from the undisturbed job; "
              f"last loss {lines[-1][2]}, undisturbed {expected.get(lines[-1][1])}")

    def one_fault(self, job, number, fault):
        target = job.step() + fault.after_steps
        if fault.rest:
            job.wait(REST)
        job.wait(until=lambda: job.step() >= target or job.succeeded, limit=self.options.limit)
        if job.succeeded:
            raise RuntimeError(f"the job ended before fault {number}: pass a larger --steps-per-fault")
        job.wait(fault.delay)
        before, ends, index, step = job.worker_pids(), len(job.ends), len(job.losses.lines) - 1, job.step()
        began = time.time()
        try:
            began = inject(job, fault)
            over = time.time()
            self.wait_for_recovery(job, fault, before, over, index)
            recovery = self.measure(job, fault, began, over, step, index, before, ends)
        except DidNotRecover:
            self.problems.append(f"fault {number} ({fault}): did not recover within {self.options.limit:g} s\n{log_of(job)}")
            recovery = Recovery(fault, began, began, began, step, 0.0, True, requeued=True)
            job.requeue()
            job.wait(until=lambda: job.step() > step, limit=self.options.limit)
        recovery.orphans = self.orphans_of(job)
        self.recoveries.append(recovery)
        self.check(number, recovery)
        print(f"{number:>4} at step {step}: {fault}: {recovery}"
              + "".join(f"\n     orphan on {orphan.host}: {' '.join(orphan.words)[:100]}" for orphan in recovery.orphans), flush=True)

    def wait_for_recovery(self, job, fault, before, over, index):
        """Returns when the job makes steps that are new, some time after all of it runs again."""
        restarts = fault.seconds == 0 or fault.kind.endswith("host killed")

        def recovered():
            if job.succeeded:
                raise RuntimeError(f"the job ended during a fault ({fault}): pass a larger --steps-per-fault")
            lines = job.losses.lines[index:]
            done = first_new_step(lines)
            settled = max(over, *job.started_at.values()) + SETTLED
            return done and lines[-1][0] > settled and not (restarts and before <= job.worker_pids())
        job.wait(until=recovered, limit=self.options.limit)

    def measure(self, job, fault, began, over, step, index, before, ends):
        over = max(over if fault.seconds else began, *job.started_at.values())
        lines = job.losses.lines[index:]
        done = first_new_step(lines)
        hit = set(fault.hosts) if fault.seconds else set()
        if fault.kind == "partition" and self.hosts.names[0] in hit:  # the daemon's side goes on
            hit = set(self.hosts.names) - hit
        restarted = not before <= job.worker_pids()
        split = phases(began, over, done, job.events, [time for time, _, _ in lines], hit) if restarted else None
        return Recovery(fault, began, over, done, step, longest_gap(lines)[1], restarted, split,
                        {host: code for _, host, code in job.ends[ends:]})

    def orphans_of(self, job):
        deadline = time.time() + ORPHAN_LIMIT
        while orphans := job.orphans():
            if time.time() > deadline:
                for orphan in orphans:  # it is counted, and must not disturb what follows
                    kill(orphan.pid)
                return orphans
            job.wait(0.02)
        return []

    def check(self, number, recovery):
        """Notes what is not as documented: orphans, restarts after a pause, launchers that end beside the fault."""
        kind, problem = recovery.fault.kind, f"fault {number} ({recovery.fault}): "
        if recovery.orphans:
            self.problems.append(f"{problem}{len(recovery.orphans)} orphans")
        if recovery.requeued or kind in ENDS_THE_DAEMON:
            return
        if recovery.restarted and kind in GO_ON:
            self.problems.append(f"{problem}the workers were restarted")
        if others := set(recovery.ended) - (set(recovery.fault.hosts) if kind in LOSES_A_NODE else set()):
            self.problems.append(f"{problem}launchers ended that were not hit: " +
                                 ", ".join(f"{host} with {recovery.ended[host]}" for host in sorted(others)))

    def wait_for_end(self, job):
        """Returns when the job has succeeded, or a launcher has ended otherwise."""
        ends = len(job.ends)
        job.wait(until=lambda: len(job.succeeded) == len(self.hosts.names) or len(job.ends) > ends,
                 limit=END_LIMIT + self.options.steps)

    def check_nothing_is_left(self, job):
        deadline = time.time() + 10
        while (left := job.processes()) and time.time() < deadline:
            time.sleep(0.05)
        if left:
            self.problems.append("left after the end of the job: " + "; ".join(" ".join(process.words) for process in left))
        for host in self.hosts.names:
            if memory := self.hosts.call("exec", host, "--", "ls", "/dev/shm").split():
                self.problems.append(f"left in shared memory on {host}: {' '.join(memory)}")

    def print_end(self):
        orphans = sum(len(recovery.orphans) for recovery in self.recoveries)
        print(f"{len(self.recoveries)} faults, {orphans} orphans\n\n{table(self.recoveries, self.kinds)}")
        if self.problems:
            print(f"\n{len(self.problems)} problems:\n" + "\n".join(self.problems))
            print("\nrepeat: tests/chaos/chaos.py " + " ".join(sys.argv[1:])
                  + ("" if "--seed" in sys.argv else f" --seed {self.options.seed}"))


def log_of(job):
    """The last lines of each host."""
    return "".join(f"{host}:\n{(job.folder / f'{host}.log').read_text(errors='replace')[-1500:]}\n" for host in job.hosts.names)


def main():
    options = parse_options()
    tool = require_tool()
    programs.require(options.build, ["bin/ddprun", "bin/ddprund", "bin/ddprun-guard", "bin/train"], "ddprun train")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the hosts are removed
    with tempfile.TemporaryDirectory(prefix="ddprun-chaos-") as temporary:
        directory = options.keep or Path(temporary)
        began = time.time()
        with Hosts(tool, Path(temporary) / "cluster", options.hosts) as hosts:
            run = Run(options, hosts, directory.resolve())
            print(f"seed {options.seed}, {options.faults} faults, {options.hosts} hosts with {options.workers} workers each, "
                  f"{options.launcher}, {options.trainer}; load {' '.join(map(str, os.getloadavg()))}", flush=True)
            try:
                run.disturbed(run.undisturbed())
            except (RuntimeError, DidNotRecover, subprocess.CalledProcessError) as error:
                run.problems.append(f"{type(error).__name__}: {error}")
            finally:
                run.print_end()
        print(f"{time.time() - began:.0f} s; load {' '.join(map(str, os.getloadavg()))}")
    return 1 if run.problems else 0


if __name__ == "__main__":
    sys.exit(main())
