#!/usr/bin/env python3
"""How fast ddprun starts, watches and ends workers, beside other launchers and a bare loop of vfork and exec.

The worker is a small static program that notes the time of its first instruction. Every launcher takes its turn in every
round: figures of one run can be compared, figures of two runs cannot. Absent launchers are left out.
"""

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

sys.dont_write_bytecode = True  # nothing of a run stays in the tree
sys.path.append(str(Path(__file__).resolve().parent.parent / "collectives"))  # for programs.py; its goals.py is another
import goals  # noqa: E402
import programs  # noqa: E402
from launchers import Job, launchers, milliseconds, wait_until  # noqa: E402

FAMILIES = ["start", "nodes", "agents", "rendezvous", "memory", "reaction", "idle"]
PROGRAMS = ["bin/ddprun", "bench/bench_launch_worker", "bench/bench_launch_bare", "bench/bench_launch_rendezvous"]


def median_line(name, samples):
    return f"| {name} | {statistics.median(samples):.2f} | {min(samples):.2f} | {max(samples):.2f} |"


class Bench:
    def __init__(self, options):
        self.options = options
        self.build = options.build.resolve()
        self.worker = str(self.build / "bench" / "bench_launch_worker")
        self.ddprun = str(self.build / "bin" / "ddprun")
        self.launchers = launchers(self.build, options.before)
        self.verdicts = []
        self.order = random.Random(15)  # the same orders in every run

    def table(self, title, names_and_samples):
        print(f"\n{title}\n\n| | median | min | max |\n|---|---|---|---|")
        for name, samples in names_and_samples:
            print(median_line(name, samples), flush=True)

    def judge(self, goal, value):
        self.verdicts.append(goal.line(value))

    def run_job(self, launcher, count):
        """Returns the milliseconds until the last worker ran, and from the end of the last one to the launcher's."""
        with Job(launcher, self.worker, count) as job:
            ended = job.wait()
            records = job.records.all()
            if job.code != 0 or len(records) != count:
                raise RuntimeError(f"{' '.join(launcher)} ended with {job.code}, {len(records)} of {count} workers ran:\n"
                                   f"{job.errors[-2000:]}")
            return (milliseconds(max(record.started for record in records) - job.began),
                    milliseconds(ended - max(record.ended for record in records)))

    def start(self):
        """The last worker's first instruction, and the end of the launcher after the end of its last worker."""
        for count in self.options.workers:
            started, ended = defaultdict(list), defaultdict(list)
            names = list(self.launchers)
            for round_ in range(self.options.rounds):
                self.order.shuffle(names)  # a big launcher leaves cold caches to the one that follows it
                for name in names:
                    if name == "torchrun" and round_ >= self.options.torchrun_rounds:
                        continue
                    start, end = self.run_job(self.launchers[name](count), count)
                    started[name].append(start)
                    ended[name].append(end)
            self.table(f"{count} workers: ms to the first instruction of the last one", sorted(started.items()))
            self.table(f"{count} workers: ms from the end of the last one to the end of the launcher", sorted(ended.items()))
            for name, goal in goals.start_goals(count):
                if name in started:
                    self.judge(goal, goals.ratio(started["ours"], started[name]))
            if count in goals.EXIT:
                self.judge(goals.EXIT[count], statistics.median(ended["ours"]))

    def nodes(self):
        """Two emulated nodes with two workers each, beside the four workers of one hydra."""
        if "hydra" not in self.launchers:
            return print("\nmpiexec.hydra is absent: two emulated nodes are not compared")
        ours, hydra = [], []
        for _ in range(self.options.rounds):
            ours.append(self.run_job(self.emulated(2, 2), 4)[0])
            hydra.append(self.run_job(self.launchers["hydra"](4), 4)[0])
        self.table("two emulated nodes × 2: ms to the first instruction of the last one",
                   [("ours", ours), ("hydra, 4 workers", hydra)])
        self.judge(goals.NODES, goals.ratio(ours, hydra))

    def emulated(self, nodes, workers):
        return [self.ddprun, "--local-nodes", "--nnodes", str(nodes), "--nproc-per-node", str(workers)]

    def agents(self):
        """All agents of a job started at once on this machine, one worker each."""
        for count in self.options.agents:
            samples = [self.run_job(self.emulated(count, 1), count)[0] for _ in range(self.options.rounds)]
            self.table(f"{count} agents started at once: ms until all workers run", [("ours", samples)])
            if count in goals.AGENTS:
                self.judge(goals.AGENTS[count], statistics.median(samples))

    def rendezvous(self):
        """From the last Join of agents that are connected to the last Assignment."""
        for count in self.options.agents:
            samples = [self.one_rendezvous(count) for _ in range(self.options.rounds)]
            self.table(f"{count} agents: ms from the last join to the last assignment", [("ours", samples)])
            if count in goals.RENDEZVOUS:
                self.judge(goals.RENDEZVOUS[count], statistics.median(samples))

    def one_rendezvous(self, count):
        ready, ready_end = os.pipe()
        daemon = subprocess.Popen([str(self.build / "bin" / "ddprund"), "--port", "0", "--ready-fd", str(ready_end),
                                   "--linger", "0.1", "--quiet"], pass_fds=[ready_end], stderr=subprocess.DEVNULL)
        os.close(ready_end)
        try:
            with os.fdopen(ready) as line:
                port = json.loads(line.readline())["port"]
            printed = subprocess.run([str(self.build / "bench" / "bench_launch_rendezvous"), str(port), str(count)],
                                     check=True, timeout=60, capture_output=True, text=True).stdout
            return int(printed) / 1000
        finally:
            daemon.terminate()
            daemon.wait()

    def memory(self):
        """Resident memory of the processes of a quiet job."""
        with self.quiet_job(4) as job:
            for name, pid in own_processes(job.pid).items():
                mib = int(status_field(pid, "VmRSS").split()[0]) / 1024
                print(f"\nresident memory of the {name}: {mib:.1f} MiB")
                if name in goals.MEMORY:
                    self.judge(goals.MEMORY[name], mib)

    def idle(self):
        """How often the kernel switched to a process that had slept, while the workers were quiet."""
        with self.quiet_job(4) as job:
            processes = own_processes(job.pid)
            before = {name: switches(pid) for name, pid in processes.items()}
            time.sleep(self.options.idle_seconds)
            for name, pid in processes.items():
                rate = (switches(pid) - before[name]) / self.options.idle_seconds
                print(f"\nidle: the {name} woke up {rate:.1f} times a second")
                if name in goals.IDLE:
                    self.judge(goals.IDLE[name], rate)

    def quiet_job(self, count, *more):
        job = Job([self.ddprun, "--nproc-per-node", str(count), *more], self.worker)
        try:
            job.wait_for_workers(count)
        except BaseException:
            job.__exit__()
            raise
        return job

    def reaction(self):
        """SIGKILL of a worker, the restart of all, then SIGTERM."""
        figures = defaultdict(list)
        for _ in range(self.options.reactions):
            with self.quiet_job(4, "--max-restarts", "1") as job:
                self.kill_one(job, figures)
                self.terminate(job, figures)
        self.table("reaction: ms", figures.items())
        self.judge(goals.STOPPED, goals.percentile(figures["SIGKILL: siblings have the signal"], 0.99))
        self.judge(goals.RESTARTED, statistics.median(figures["then all run again"]))
        self.judge(goals.SIGNALLED, statistics.median(figures["SIGTERM: every worker has it"]))
        self.judge(goals.GONE, statistics.median(figures["then ddprun has ended"]))

    @staticmethod
    def kill_one(job, figures):
        first = job.records.all()
        killed = time.monotonic_ns()
        os.kill(first[0].pid, signal.SIGKILL)
        job.wait_for_workers(8)
        second = job.records.all()
        stopped = max(record.ended for record in second[:4])  # 0 of the one that was killed
        figures["SIGKILL: siblings have the signal"].append(milliseconds(stopped - killed))
        figures["then all run again"].append(milliseconds(max(record.started for record in second[4:]) - stopped))

    @staticmethod
    def terminate(job, figures):
        sent = time.monotonic_ns()
        job.signal(signal.SIGTERM)
        ended = job.wait()
        records = job.records.all()[4:]
        figures["SIGTERM: every worker has it"].append(milliseconds(max(record.signalled for record in records) - sent))
        figures["then ddprun has ended"].append(milliseconds(ended - max(record.ended for record in records)))


def status_field(pid, name):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return line.split(":", 1)[1].strip()
    raise RuntimeError(f"/proc/{pid}/status has no {name}")


def switches(pid):
    return int(status_field(pid, "voluntary_ctxt_switches"))


def own_processes(guard):
    """name -> pid of the guard, of the agent below it, and of the daemon of this run."""
    children = Path(f"/proc/{guard}/task/{guard}/children").read_text().split()
    agent = int(children[0])
    found = {"agent": agent, "guard": guard}
    mark = f"DDP_BENCH_LAUNCH={os.getpid()}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "comm").read_text().strip() == "ddprund" and mark in (folder / "environ").read_bytes():
                found["daemon"] = int(folder.name)
        except OSError:
            continue  # it has ended
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True, help="for example build/release")
    parser.add_argument("--before", type=Path, help="another build, to see the effect of a change")
    parser.add_argument("--only", nargs="+", choices=FAMILIES, default=FAMILIES, metavar="FAMILY", help=", ".join(FAMILIES))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--torchrun-rounds", type=int, default=1, help="a start of torchrun takes seconds")
    parser.add_argument("--workers", type=int, nargs="+", default=[4, 64, 256])
    parser.add_argument("--agents", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--reactions", type=int, default=100)
    parser.add_argument("--idle-seconds", type=float, default=5)
    options = parser.parse_args()
    programs.require(options.build, PROGRAMS, "bench_launch")
    os.environ["DDP_BENCH_LAUNCH"] = str(os.getpid())  # marks the daemons of this run
    bench = Bench(options)
    print("launchers:", ", ".join(bench.launchers))
    try:
        for family in options.only:
            getattr(bench, family)()
    except RuntimeError as error:
        sys.exit(f"{Path(sys.argv[0]).name}: {error}")
    if bench.verdicts:
        print("\n| goal | bound | measured | met |\n|---|---|---|---|\n" + "\n".join(bench.verdicts))


if __name__ == "__main__":
    main()
