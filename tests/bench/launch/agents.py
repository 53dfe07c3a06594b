#!/usr/bin/env python3
"""What thousands of agents cost the daemon, with TLS.

Daemon and agents (bench_launch_agents, one process with all of their connections) are on one virtual host, so that the connections
are TLS over its loopback. The daemon's CPU time is that of its threads; a run that connects as often without a Join, within the
same time, gives the part of the handshakes. Bytes are those of the host's loopback, both ways, with the headers. Needs root and the cluster tools
(DDPRUN_CLUSTER_TOOLS).
"""

import argparse
import os
import resource
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True  # nothing of a run stays in the tree
sys.path.append(str(Path(__file__).resolve().parent.parent / "collectives"))  # for programs.py; its goals.py is another
import goals  # noqa: E402
import programs  # noqa: E402
from fault_job import load  # noqa: E402
from goals import KIB, MEGABYTES, MILLISECONDS, SECONDS, FaultGoal  # noqa: E402
from virtual_hosts import Hosts, require_tool  # noqa: E402

PROGRAMS = ["bin/ddprund", "bench/bench_launch_agents"]
RARE_HEARTBEATS = ["--heartbeat-interval", "600", "--lost-after", "3600", "--hold", "7200"]
LONG_LINGER = ["--linger", "600"]  # without a Join no agent is there


class Daemon:
    """A ddprund on the host, and the figures of its process."""

    def __init__(self, hosts, build, options):
        self.hosts = hosts
        self.process = subprocess.Popen(hosts.on("n1", [str(build / "bin" / "ddprund"), "--bind", hosts.address("n1"),
                                                        "--quiet", *options]), env=hosts.environment, stdin=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, text=True)

    def __enter__(self):
        while not (pid := self._pid()):
            if self.process.poll() is not None:
                raise RuntimeError(f"ddprund ended: {self.process.stderr.read()}")
        self.pid = pid
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.communicate()

    def _pid(self):
        lines = self.hosts.call("ps", "n1").splitlines()
        return next((int(line.split()[0]) for line in lines if "ddprund" in line), None)

    def cpu(self):
        """Seconds of CPU time of all threads so far."""
        return sum(int(file.read_text().split()[0]) for file in Path(f"/proc/{self.pid}/task").glob("*/schedstat")) / 1e9

    def resident_kib(self):
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))

    def loopback_bytes(self):
        lines = self.hosts.call("exec", "n1", "--", "cat", "/proc/net/dev").splitlines()
        return int(next(line for line in lines if line.strip().startswith("lo:")).split()[1])


class Bench:
    def __init__(self, options, hosts):
        self.options, self.hosts, self.build = options, hosts, options.build.resolve()
        self.lines = []

    def add(self, goal, samples, began):
        self.lines.append(goal.line(samples, f"{began} to {load()}"))
        print(self.lines[-1], flush=True)

    def run(self, count, spread, settings=(), how=()):
        """Returns the daemon's CPU seconds, KiB and bytes for `count` agents within `spread` seconds, and the milliseconds of an
        abort."""
        with Daemon(self.hosts, self.build, ["--join-timeout", "600", *settings]) as daemon:
            cpu, kib, sent = daemon.cpu(), daemon.resident_kib(), daemon.loopback_bytes()
            words = [str(self.build / "bench" / "bench_launch_agents"), self.hosts.address("n1"), "29400", str(count), str(spread), *how]
            agents = subprocess.Popen(self.hosts.on("n1", words), env=self.hosts.environment, stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True)
            if agents.stdout.readline() != "ready\n":
                daemon.process.terminate()
                raise RuntimeError(f"bench_launch_agents ended with {agents.wait()}; ddprund: {daemon.process.stderr.read()}")
            figures = daemon.cpu() - cpu, daemon.resident_kib() - kib, daemon.loopback_bytes() - sent
            printed, _ = agents.communicate("\n", timeout=60)
            return *figures, int(printed or 0) / 1000

    def start(self):
        """All agents of a job join, with heartbeats that are due after the measurement and with the usual ones."""
        count = self.options.agents
        for spread, name in ((0, "at once"), (self.options.spread, f"over {self.options.spread} s")):
            rounds = self.options.rounds if spread == 0 else 1
            handshakes = [self.run(count, spread, LONG_LINGER, ["handshakes"])[0] for _ in range(rounds)]
            print(f"    {count} handshakes {name}: {min(handshakes):.2f} to {max(handshakes):.2f} s of CPU", flush=True)
            for settings, beats in ((RARE_HEARTBEATS, "without heartbeats"), ([], "with heartbeats")):
                began = load()
                runs = [self.run(count, spread, settings) for _ in range(rounds)]
                beyond = [cpu - min(handshakes) for cpu, *_ in runs]
                self.add(FaultGoal(f"{count} agents join {name}, {beats}: CPU beyond handshakes", 1, SECONDS), beyond, began)
                self.add(FaultGoal(f"{count} agents join {name}, {beats}: sent both ways", 60, MEGABYTES),
                         [sent / 1e6 for *_, sent, _ in runs], began)
                if spread == 0:
                    self.add(FaultGoal(f"{count} agents, {beats}: resident memory for each", 60, KIB),
                             [kib / count for _, kib, _, _ in runs], began)

    def abort(self):
        began = load()
        times = [self.run(1000, 0)[3] for _ in range(self.options.aborts)]
        self.add(goals.ABORTED, times, began)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True, help="for example build/release")
    parser.add_argument("--only", nargs="+", choices=["start", "abort"], default=["start", "abort"])
    parser.add_argument("--agents", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--spread", type=int, default=60, help="seconds")
    parser.add_argument("--aborts", type=int, default=10)
    options = parser.parse_args()
    tool = require_tool()
    programs.require(options.build, PROGRAMS, "bench_launch")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    os.environ["DDPRUN_JOB_KEY"] = secrets.token_hex(32)
    with tempfile.TemporaryDirectory(prefix="bench-agents-") as directory, Hosts(tool, directory, 1) as hosts:
        bench = Bench(options, hosts)
        for family in options.only:
            try:
                getattr(bench, family)()
            except RuntimeError as error:
                print(f"{family}: {error}", file=sys.stderr, flush=True)
    print(f"\n{FaultGoal.HEAD}\n" + "\n".join(bench.lines))


if __name__ == "__main__":
    main()
