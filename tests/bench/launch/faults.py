#!/usr/bin/env python3
"""What faults cost a job on virtual hosts: killed hosts and agents, cut networks, processes that stand still.

Every worker (bench_launch_steps) writes the time of each of its steps and its generation to one file. The hosts are network
namespaces made by the cluster tools (DDPRUN_CLUSTER_TOOLS), with TLS between them. Goals (goals.py) are printed at the end, met
or not. Needs root; without the tools it reports that and ends with 77.
"""

import argparse
import os
import random
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.dont_write_bytecode = True  # nothing of a run stays in the tree
sys.path.append(str(Path(__file__).resolve().parent.parent / "collectives"))  # for programs.py; its goals.py is another
import goals  # noqa: E402
import programs  # noqa: E402
from fault_job import FaultJob, first_new_step, last_step, load, now, overlaps, stand_still, wait_for  # noqa: E402
from goals import COUNT, SECONDS, FaultGoal  # noqa: E402
from virtual_hosts import Hosts, require_tool  # noqa: E402

FAMILIES = ["host-killed", "host-killed-training", "agent-killed", "agent-killed-training", "cut", "broken", "agent-stopped",
            "agent-stopped-longer", "daemon-stopped", "newcomers", "breaker"]
PROGRAMS = ["bin/ddprun", "bin/ddprund", "bin/ddpctl", "bin/train", "bench/bench_launch_steps"]
PHASES = ["detect", "stop", "rendezvous", "start", "restore"]
CHECKPOINT_EVERY = 50
ELASTIC = ["--max-restarts", "3", "--rdzv-conf", "last_call_timeout=1"]


class Bench:
    def __init__(self, options, tool, directory):
        self.options, self.tool, self.directory = options, tool, Path(directory)
        self.build = options.build.resolve()
        self.ddprun, self.steps = str(self.build / "bin" / "ddprun"), str(self.build / "bench" / "bench_launch_steps")
        self.train = str(self.build / "bin" / "train")
        self.key = secrets.token_hex(32)
        self.random = random.Random(options.seed)
        self.folders = 0
        self.lines = []

    def new_folder(self):
        self.folders += 1
        folder = self.directory / f"job-{self.folders}"
        folder.mkdir()
        return folder

    def hosts(self, count):
        return Hosts(self.tool, self.directory / "cluster", count)

    def add(self, goal, samples, began):
        """Adds a line of the table. `began`: the load average when the measurement began."""
        self.lines.append(goal.line(samples, f"{began} to {load()}"))
        print(self.lines[-1], flush=True)

    def trainer(self, folder, steps, *more):
        return [self.train, "--steps", str(steps), "--global-batch", "48", "--hidden1", "256", "--hidden2", "64",
                "--progress", "none", "--loss-log", str(folder / "losses"), *more]

    # Killed ---------------------------------------------------------------------------------------------------------

    def host_killed(self):
        self.killed(goals.HOST_KILLED, kill_host, training=False)

    def host_killed_training(self):
        self.killed(goals.HOST_KILLED, kill_host, training=True)

    def agent_killed(self):
        self.killed(goals.AGENT_KILLED, kill_agent, training=False)

    def agent_killed_training(self):
        self.killed(goals.AGENT_KILLED, kill_agent, training=True)

    def killed(self, goal, kill, training):
        """One of three nodes is killed, with workers that do not notice it, or with `train`."""
        began, totals, phases = load(), [], {name: [] for name in PHASES}
        with self.hosts(3) as hosts:
            for _ in range(self.options.kills):
                total, split = self.one_kill(hosts, kill, training)
                totals.append(total)
                for name, seconds in zip(PHASES, split):
                    phases[name].append(seconds)
        name = f"{goal.what}, {'train' if training else 'workers without connections'}"
        self.add(FaultGoal(name, goal.bound, goal.unit, goal.of), totals, began)
        print("    median ms: " + ", ".join(f"{phase} {1000 * statistics.median(seconds):.1f}" for phase, seconds
                                            in phases.items() if seconds), flush=True)

    def one_kill(self, hosts, kill, training):
        """Returns the seconds from the kill to the first instruction of the last rank, and the phases of them."""
        hosts.call("start", "n3")
        folder = self.new_folder()
        program = self.trainer(folder, 1_000_000, "--checkpoint-dir", str(folder / "checkpoints"),
                               "--checkpoint-every", str(CHECKPOINT_EVERY)) if training else []
        with FaultJob(self, hosts, ["n1", "n2", "n3"], ["--nnodes", "2:3", *ELASTIC], program) as job:
            job.wait_for_ranks(3)
            if training:
                wait_for(lambda: last_step(folder / "losses") > CHECKPOINT_EVERY, "the first checkpoint")
            time.sleep(0.5 + self.random.random())  # at any time between two heartbeats
            killed = kill(hosts, job)
            job.wait_for_ranks(2, generation=2)
            running = max(job.first_steps(2).values())
            split = self.phases(job, killed, running)
            if training:
                split.append(first_new_step(folder / "losses", CHECKPOINT_EVERY) - running)
            return running - killed, split

    @staticmethod
    def phases(job, killed, running):
        survivors = [job.nodes["n1"], job.nodes["n2"]]
        wait_for(lambda: all(len(node.events("workers_started")) == 2 for node in survivors), "events of generation 2")
        stopping = min(node.events("stopping")[0][0] for node in survivors)
        stopped = max(node.events("stopped")[0][0] for node in survivors)
        assigned = max(node.events("assigned")[1][0] for node in survivors)
        return [stopping - killed, stopped - stopping, assigned - stopped, running - assigned]

    # Cut off --------------------------------------------------------------------------------------------------------

    def cut(self):
        """One of four hosts is separated from the others, and the network heals. Its second worker ignores SIGTERM."""
        with self.hosts(4) as hosts:
            for seconds, tries in zip(self.options.cuts, self.options.cut_tries):
                began, beside, back, member = load(), [], [], []
                for _ in range(tries):
                    with FaultJob(self, hosts, hosts.names, ["--nnodes", "3:4", "--nproc-per-node", "2", *ELASTIC],
                                  stubborn=7) as job:
                        job.wait_for_ranks(8)
                        time.sleep(self.random.random())
                        self.one_cut(hosts, job, seconds, beside, back, member)
                self.add(FaultGoal(goals.OVERLAP.format(seconds), 0, COUNT), beside, began)
                self.add(FaultGoal(goals.BACK.format(seconds), 2, SECONDS), back, began)
                print(f"    its workers run again after {', '.join(map('{:.2f}'.format, member))} s", flush=True)

    def one_cut(self, hosts, job, seconds, beside, back, member):
        node = job.nodes["n4"]
        begin = now()
        hosts.call("partition", "n4", "all")
        cut = now()
        time.sleep(max(0.0, begin + seconds - now()))
        healed = now()
        hosts.call("heal")
        try:
            lost = bool(node.events("connection_lost", "frozen"))
            back.append(node.known_after(healed) if lost else 0.0)
            # A short cut leaves the group alone; after a long one n4 takes part in a later group.
            after = wait_for(lambda: job.step_after(healed + (0 if job.lost_nodes() == 0 else 0.02), "n4"), "a step of n4", 40)
            member.append(after - healed)
            time.sleep(1)  # what would follow from a loss
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            print(f"    {error}\n{job.status()}\nn4:\n{node.log()[-3000:]}", flush=True)
            back.append(None)
        found = overlaps(job.steps())
        beside.append(len(found))
        if found:
            print(f"    the last one was made {max(step.time for step in found) - cut:.2f} s after the cut", flush=True)
        print(f"    cut of {seconds} s: {job.lost_nodes()} losses, generations {sorted(job.generations())}", flush=True)

    # Connections that break -----------------------------------------------------------------------------------------

    def broken(self):
        """The second node reaches the daemon through a proxy, which breaks the connection at one end."""
        kinds = ["client reset", "client close", "server reset"]
        with self.hosts(3) as hosts:
            began = load()
            words = [sys.executable, str(Path(__file__).parent / "breaking_proxy.py"), "29400", "n1:29400"]
            proxy = subprocess.Popen(hosts.on("n3", words), env=hosts.environment, stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, text=True)
            try:
                proxy.stdout.readline()
                restarts = self.breaks(hosts, proxy, [kinds[i % 3] for i in range(self.options.breaks)])
                self.add(goals.CONNECTION_BROKEN, restarts, began)
                self.closed_as_by_an_agent(hosts, proxy)
            finally:
                proxy.stdin.close()
                proxy.wait()

    def breaks(self, hosts, proxy, kinds):
        """Returns for each break how many restarts it has caused."""
        with self.job_through_proxy(hosts) as job:
            node, restarts = job.nodes["n2"], []
            for kind in kinds:
                before, backs = len(job.generations()), len(node.events("connection_back"))
                request(proxy, kind)
                wait_for(lambda: len(node.events("connection_back")) > backs, f"{kind}: n2 is connected again", 20)
                time.sleep(0.05 + 0.3 * self.random.random())
                restarts.append(len(job.generations()) - before)
            time.sleep(1)  # what the last one has caused
            restarts[-1] = len(job.generations()) - 1 - sum(restarts[:-1])
            return restarts

    def job_through_proxy(self, hosts):
        job = FaultJob(self, hosts, ["n1"], ["--nnodes", "2", "--max-restarts", "0"])
        job.start("n2", "--rdzv-endpoint", "n3:29400", "--rdzv-conf", "is_host=0")
        job.wait_for_ranks(2)
        return job

    def closed_as_by_an_agent(self, hosts, proxy):
        """Shows what follows when the daemon's end alone is closed, which looks like the end of the agent."""
        with self.job_through_proxy(hosts) as job:
            closed = now()
            request(proxy, "server close")
            wait_for(lambda: len(job.generations()) > 1 or job.nodes["n1"].process.poll() is not None, "a restart or the end", 20)
            print(f"    the daemon's end closed (as by the end of an agent): after {now() - closed:.1f} s "
                  f"{len(job.generations())} groups, n1 {job.nodes['n1'].process.poll()}", flush=True)

    # Processes that stand still -------------------------------------------------------------------------------------

    def agent_stopped(self):
        """The agents of all hosts but the daemon's stand still for 2 s, each at its own random moments."""
        options = ["--nnodes", "8", "--max-restarts", "0"]
        with self.hosts(8) as hosts, FaultJob(self, hosts, hosts.names, options, interval_ms=20) as job:
            began = load()
            job.wait_for_ranks(8)
            moments = [[self.random.uniform(0.2, 1.7) for _ in range(number, self.options.stops, 7)]
                       for number in range(7)]

            def stop(agent, pauses):
                for pause in pauses:
                    time.sleep(pause)
                    stand_still(agent, 2)
            threads = [threading.Thread(target=stop, args=(job.nodes[host].agent(), pauses))
                       for host, pauses in zip(hosts.names[1:], moments)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            time.sleep(2)
            lost = job.lost_nodes() + len(job.generations()) - 1
            if lost:
                print(job.status())
            frozen = sum(len(node.events("frozen")) for node in job.nodes.values())
            self.add(goals.AGENT_STOPPED, [0] * (self.options.stops - lost) + [1] * lost, began)
            print(f"    workers were frozen {frozen} times", flush=True)

    def agent_stopped_longer(self):
        began, restarts, back = load(), [], []
        with self.hosts(4) as hosts:
            for _ in range(self.options.long_stops):
                with FaultJob(self, hosts, hosts.names, ["--nnodes", "3:4", "--scale-up", "at-restart", *ELASTIC]) as job:
                    job.wait_for_ranks(4)
                    time.sleep(self.random.random())
                    stand_still(job.nodes["n4"].agent(), 5)
                    continued = now()
                    back.append(job.nodes["n4"].known_after(continued))
                    time.sleep(1.5)
                    restarts.append(len(job.generations()) - 1)
        self.add(goals.AGENT_STOPPED_LONGER, restarts, began)
        self.add(FaultGoal("agent stopped for 5 s: known to the daemon again", 2, SECONDS), back, began)

    def daemon_stopped(self):
        """The daemon stands still while `train` runs on four hosts: the loss curve stays the same, bit by bit."""
        with self.hosts(4) as hosts:
            expected = self.training(hosts, None)[0]
            for seconds, tries in zip(self.options.pauses, self.options.pause_tries):
                began = load()
                results = [self.training(hosts, seconds) for _ in range(tries)]
                for what, samples in (("restarts", [restarts for _, restarts, _ in results]),
                                      ("nodes lost", [lost for _, _, lost in results]),
                                      ("steps with another loss", [differences(expected, losses) for losses, _, _ in results])):
                    self.add(FaultGoal(goals.DAEMON_STOPPED.format(seconds, what), 0, COUNT), samples, began)

    def training(self, hosts, pause):
        """Returns the loss curve, the number of restarts, and that of lost nodes."""
        folder = self.new_folder()
        with FaultJob(self, hosts, hosts.names, ["--nnodes", "4", "--max-restarts", "3"],
                      self.trainer(folder, self.options.train_steps)) as job:
            job.wait_for_ranks(4)
            wait_for(lambda: last_step(folder / "losses") > self.options.train_steps // 4, "a quarter of the training")
            if pause:
                stand_still(job.nodes["n1"].daemon(), pause)
                if last_step(folder / "losses") >= self.options.train_steps:
                    print("    the training ended before the daemon went on: --train-steps is too small", flush=True)
            codes = [node.process.wait(120) for node in job.nodes.values()]
            if any(codes):
                print(f"    exit codes {codes}\n{job.nodes['n1'].log()[-3000:]}", flush=True)
            return (folder / "losses").read_text().splitlines(), len(job.generations()) - 1, job.lost_nodes()

    # Nodes that come and go -----------------------------------------------------------------------------------------

    def newcomers(self):
        began = load()
        options = ["--nnodes", "2:64", *ELASTIC]
        with self.hosts(64) as hosts, FaultJob(self, hosts, ["n1", "n2"], options, interval_ms=500) as job:
            job.wait_for_ranks(2)
            begin = now()
            for number, host in enumerate(hosts.names[2:]):
                time.sleep(max(0.0, begin + 1 + number - now()))
                job.start(host)
            complete = wait_for(lambda: next((g for g in job.generations() if len(job.first_steps(g)) == 64), None),
                                "64 ranks", 240)
            late = max(job.first_steps(complete).values()) - begin - 62
            print(f"    64 ranks ran {late:.1f} s after the last one came", flush=True)
            self.add(goals.NEWCOMERS, [len(job.generations())], began)

    def breaker(self):
        """The ddprun of one of two nodes is killed 2 s after each start, and started again at once or after its loss."""
        with self.hosts(2) as hosts:
            for pause, when in ((0, "at once"), (1, "1 s later")):
                began = load()
                groups = [self.deaths(hosts, pause) for _ in range(self.options.breakers)]
                self.add(FaultGoal(f"{goals.BREAKER.what}, started again {when}", goals.BREAKER.bound, COUNT), groups, began)

    def deaths(self, hosts, pause):
        """Returns the number of worker groups until the job ends, 10 at most; None: it neither ends nor goes on."""
        with FaultJob(self, hosts, hosts.names, ["--nnodes", "2", *ELASTIC]) as job:
            first = job.nodes["n1"]

            def ended():
                return first.process.poll() is not None
            while not ended() and len(job.generations()) < 10:
                newest = max(job.generations(), default=1)
                wait_for(lambda: len(job.first_steps(newest)) == 2 or ended(), "both ranks")
                time.sleep(2)
                if ended():
                    break
                os.kill(job.nodes["n2"].agent(), signal.SIGKILL)
                job.nodes["n2"].process.wait()
                time.sleep(pause)
                if not ended():
                    job.start("n2")
                try:
                    wait_for(lambda: max(job.generations()) > newest or ended(), "the next group", 20)
                except RuntimeError as error:
                    print(f"    {error}; {job.status().splitlines()[1]}", flush=True)
                    return None
            verdict = first.events("verdict")
            print(f"    {verdict[-1][1]['exit_code']}: {verdict[-1][1]['reason']}" if verdict else "    no verdict", flush=True)
            return len(job.generations())


def kill_host(hosts, _):
    killed = now()  # before the tool, which takes 0.1 s
    hosts.call("kill", "n3")
    return killed


def kill_agent(_, job):
    agent = job.nodes["n3"].agent()
    killed = now()
    os.kill(agent, signal.SIGKILL)
    return killed


def request(proxy, line):
    proxy.stdin.write(line + "\n")
    proxy.stdin.flush()
    return proxy.stdout.readline()


def differences(expected, losses):
    return abs(len(expected) - len(losses)) + sum(a != b for a, b in zip(expected, losses))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True, help="for example build/release")
    parser.add_argument("--only", nargs="+", choices=FAMILIES, default=FAMILIES, metavar="FAMILY", help=", ".join(FAMILIES))
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--cuts", type=float, nargs="+", default=[1, 4, 10, 60], help="seconds")
    parser.add_argument("--cut-tries", type=int, nargs="+", default=[5, 5, 5, 2], help="for each of --cuts")
    parser.add_argument("--breaks", type=int, default=100)
    parser.add_argument("--stops", type=int, default=200)
    parser.add_argument("--long-stops", type=int, default=10)
    parser.add_argument("--pauses", type=float, nargs="+", default=[2, 5, 20], help="seconds")
    parser.add_argument("--pause-tries", type=int, nargs="+", default=[5, 5, 2], help="for each of --pauses")
    parser.add_argument("--train-steps", type=int, default=1500)
    parser.add_argument("--breakers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=16, help="of the moments of faults")
    options = parser.parse_args()
    tool = require_tool()
    programs.require(options.build, PROGRAMS, "bench_launch train")
    with tempfile.TemporaryDirectory(prefix="bench-faults-") as directory:
        bench = Bench(options, tool, directory)
        for family in options.only:
            try:
                getattr(bench, family.replace("-", "_"))()
            except (RuntimeError, subprocess.CalledProcessError) as error:
                print(f"{family}: {error}", file=sys.stderr, flush=True)
    print(f"\n{FaultGoal.HEAD}\n" + "\n".join(bench.lines))


if __name__ == "__main__":
    main()
