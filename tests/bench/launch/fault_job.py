"""A job on virtual hosts, and its traces: the steps of its workers, and the events of its nodes."""

import itertools
import json
import os
import re
import signal
import subprocess
import time
from collections import defaultdict, namedtuple
from datetime import datetime
from pathlib import Path

Step = namedtuple("Step", "time generation rank host")


def now():
    """The time of day in seconds: the only clock that virtual hosts share."""
    return time.time()


def load():
    """The load averages of the last minute and of the last five."""
    return " ".join(Path("/proc/loadavg").read_text().split()[:2])


def wait_for(condition, what, limit=60.0):
    """Polls `condition` every millisecond and returns its value once it is true. Raises RuntimeError at the limit."""
    deadline = now() + limit
    while not (value := condition()):
        if now() > deadline:
            raise RuntimeError(f"{what}: not within {limit:g} s")
        time.sleep(0.001)
    return value


def parse_steps(text):
    """The complete lines of bench_launch_steps."""
    steps = []
    for line in text[:text.rfind("\n") + 1].splitlines():
        written, generation, rank, host, _ = line.split()
        steps.append(Step(float(written), int(generation), int(rank), host))
    return steps


def overlaps(steps):
    """The steps of a generation after the first one of a newer generation, as they were written or by the clock."""
    began = {}
    for step in steps:
        began[step.generation] = min(step.time, began.get(step.generation, step.time))
    newest, found = 0, []
    for step in steps:
        newest = max(newest, step.generation)
        by_clock = any(generation > step.generation and step.time >= time for generation, time in began.items())
        if step.generation < newest or by_clock:
            found.append(step)
    return found


def stand_still(pid, seconds):
    os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    os.kill(pid, signal.SIGCONT)


def last_step(losses):
    """The step of the last complete line of a loss log; 0 without one."""
    try:
        with open(losses, "rb") as file:
            file.seek(max(0, losses.stat().st_size - 200))
            lines = file.read().split(b"\n")
        return int(lines[-2].split()[0]) if len(lines) > 1 else 0
    except (FileNotFoundError, ValueError, IndexError):
        return 0


def first_new_step(losses, checkpoint_every):
    """The time of the first step of a trainer that resumes: its log first ends at a checkpoint, then goes on."""
    state = losses.stat()

    def resumed():
        new = losses.stat()
        return (new.st_ino, new.st_mtime_ns) != (state.st_ino, state.st_mtime_ns) and last_step(losses) % checkpoint_every
    wait_for(resumed, "a step after the restart")
    return now()


class Node:
    """The ddprun on one host."""

    def __init__(self, job, host, words, environment):
        self.job, self.host = job, host
        self.events_file = job.folder / f"{host}.events"
        self.log_file = job.folder / f"{host}.log"
        with open(self.log_file, "ab") as log:
            self.process = subprocess.Popen(job.hosts.on(host, words), env={**job.hosts.environment, **environment},
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def log(self):
        return self.log_file.read_text(errors="replace")

    def events(self, *names):
        """(seconds since the epoch, event) of these names, in the order in which they were written."""
        if not self.events_file.exists():
            return []
        text = self.events_file.read_text()
        events = [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]
        return [(datetime.fromisoformat(event["time"].replace("Z", "+00:00")).timestamp(), event)
                for event in events if event["event"] in names]

    def known_after(self, time, limit=10):
        """Returns the seconds from `time` until the daemon has welcomed this node. Events have milliseconds, cut off."""
        welcomed = wait_for(lambda: [at for at, _ in self.events("connection_back", "joined") if at > time - 0.001],
                            f"{self.host} is known to the daemon", limit)
        return max(0.0, welcomed[0] - time)

    def pid_of(self, pattern):
        """The pid, as seen from outside the host, of the process whose command line matches."""
        for line in self.job.hosts.call("ps", self.host).splitlines():
            pid, command = line.split(maxsplit=1)
            if re.match(pattern, command):
                return int(pid)
        raise RuntimeError(f"{self.host} runs no {pattern}:\n{self.log()[-2000:]}")

    def agent(self):
        return self.pid_of(re.escape(self.job.ddprun) + " ")

    def daemon(self):
        return self.pid_of(r"\S*ddprund ")


class FaultJob:
    """ddprun with bench_launch_steps on virtual hosts, the daemon on the first. Ended by force with the `with` block."""

    def __init__(self, bench, hosts, names, options, program=(), interval_ms=2, stubborn=None):
        self.hosts, self.ddprun, self.folder = hosts, bench.ddprun, bench.new_folder()
        self.steps_file = self.folder / "steps"
        self.options = options
        self.command = [bench.steps, str(self.steps_file), str(interval_ms), *program]
        self.has_program = bool(program)
        self.environment = {"LOGLEVEL": "info", "DDPRUN_JOB_KEY": bench.key, "OMP_NUM_THREADS": "1",
                            "HOME": str(self.folder)}
        if stubborn is not None:
            self.environment["STUBBORN"] = str(stubborn)
        self._steps, self._read = [], 0
        self._first = defaultdict(dict)  # generation -> rank -> time
        self.nodes = {}
        for name in names:
            self.start(name)

    def __enter__(self):
        return self

    def __exit__(self, error, *_):
        if error:
            print(self.status() + "".join(f"\n{node.host}:\n{node.log()[-1500:]}" for node in self.nodes.values()), flush=True)
        self.steps_file.with_suffix(".end").touch()
        if self.has_program or not self._ended_within(5):  # or nodes that wait for others
            self._signal(signal.SIGTERM)
            if not self._ended_within(15):
                self._signal(signal.SIGKILL)
                self._ended_within(None)
        # The next job has the same endpoint.
        wait_for(lambda: "ddprund" not in self.hosts.call("ps", "n1"), "the end of the daemon", 30)

    def _signal(self, number):
        for node in self.nodes.values():
            if node.process.poll() is None:
                node.process.send_signal(number)

    def _ended_within(self, seconds):
        try:
            for node in self.nodes.values():
                node.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def start(self, name, *options):
        words = [self.ddprun, "--rdzv-endpoint", "n1:29400", "--events", str(self.folder / f"{name}.events"),
                 *self.options, *options, *self.command]
        self.nodes[name] = Node(self, name, words, self.environment)
        return self.nodes[name]

    def steps(self):
        """All complete steps so far, in the order in which they were written."""
        if self.steps_file.exists():
            with open(self.steps_file) as file:
                file.seek(self._read)
                text = file.read()
            text = text[:text.rfind("\n") + 1]
            self._read += len(text)
            for step in parse_steps(text):
                self._steps.append(step)
                self._first[step.generation].setdefault(step.rank, step.time)
        return self._steps

    def generations(self):
        self.steps()
        return set(self._first)

    def first_steps(self, generation):
        """rank -> the time of its first instruction in this generation."""
        self.steps()
        return self._first[generation]

    def wait_for_ranks(self, count, generation=1, limit=60.0):
        """Returns when that many ranks of the generation run."""
        def run():
            for node in self.nodes.values() if generation == 1 else ():  # later ones may have been killed
                if node.process.poll() is not None:
                    raise RuntimeError(f"{node.host}: ddprun ended with {node.process.returncode}:\n{node.log()[-2000:]}")
            return len(self.first_steps(generation)) >= count
        wait_for(run, f"{count} ranks of generation {generation}", limit)

    def step_after(self, time, host):
        """The time of the first step on the host after `time`, or None."""
        recent = itertools.takewhile(lambda step: step.time > time, reversed(self.steps()))
        return min((step.time for step in recent if step.host == host), default=None)

    def lost_nodes(self):
        """How many nodes the daemon has counted as lost."""
        return len(re.findall(r"\[ddprund\] node \S+ was lost", self.nodes["n1"].log()))

    def status(self):
        return subprocess.run(self.hosts.on("n1", [str(Path(self.ddprun).parent / "ddpctl"), "status",
                                                   "--rdzv-endpoint", "n1:29400"]), text=True, capture_output=True,
                              env={**self.hosts.environment, **self.environment}).stdout
