"""The goals of bench_launch, and whether figures reach them. Pure: samples in, lines out."""

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass

RATIO, MILLISECONDS, MIB, PER_SECOND = "×", "ms", "MiB", "/s"
SECONDS, KIB, MEGABYTES, COUNT = "s", "KiB", "MB", ""


def percentile(samples, share):
    """The smallest sample that at least `share` of all samples do not exceed."""
    ordered = sorted(samples)
    return ordered[max(math.ceil(share * len(ordered)), 1) - 1]


def ratio(ours, others):
    """The median over the rounds of ours divided by the other's of the same round."""
    return statistics.median(a / b for a, b in zip(ours, others))


@dataclass(frozen=True)
class Goal:
    what: str
    bound: float
    unit: str

    def line(self, value):
        met = "yes" if value <= self.bound else "**no**"
        space = "" if self.unit == RATIO else " "
        return f"| {self.what} | ≤ {self.bound:g}{space}{self.unit} | {value:.2f} | {met} |"


@dataclass(frozen=True)
class FaultGoal:
    """A bound for the median of several tries, or for the worst of them."""
    what: str
    bound: float
    unit: str
    of: Callable = max

    HEAD = ("| goal | tries | within | median | worst | bound | met | load |\n"
            "|---|---|---|---|---|---|---|---|")

    def line(self, samples, load):
        """`samples` has None for a try that did not reach what is measured."""
        figures = [math.inf if sample is None else sample for sample in samples]
        within = sum(figure <= self.bound for figure in figures)
        met = "yes" if self.of(figures) <= self.bound else "**no**"
        name = "median" if self.of is statistics.median else "worst"
        figure = "{:g}" if self.unit == COUNT else "{:.2f}"
        unit = f" {self.unit}" if self.unit else ""
        return (f"| {self.what} | {len(figures)} | {within} | {figure.format(statistics.median(figures))}{unit} | "
                f"{figure.format(max(figures))}{unit} | {name} ≤ {self.bound:g}{unit} | {met} | {load} |")


def start_goals(count):
    """Of the first instruction of the last of `count` workers: (column that ours is divided by, goal)."""
    return [("hydra", Goal(f"start of {count}, beside hydra's", 1.2, RATIO)),
            ("bare", Goal(f"start of {count}, beside the bare loop's (beyond)", 2, RATIO))]


EXIT = {64: Goal("exit after the last of 64 workers", 5, MILLISECONDS)}
NODES = Goal("start of two emulated nodes × 2, beside hydra's 4", 2, RATIO)
AGENTS = {8: Goal("8 agents started at once, all running", 60, MILLISECONDS)}
RENDEZVOUS = {64: Goal("rendezvous of 64 agents, last join to last assignment", 20, MILLISECONDS)}
MEMORY = {"agent": Goal("resident memory of the agent", 8, MIB)}
STOPPED = Goal("SIGKILL of a worker: siblings have the signal, p99", 5, MILLISECONDS)
RESTARTED = Goal("then all workers run again", 10, MILLISECONDS)
SIGNALLED = Goal("SIGTERM: every worker has it", 3, MILLISECONDS)
GONE = Goal("then ddprun has ended, after the last worker", 6, MILLISECONDS)
# Heartbeats of both sides, and the flight recorder's second.
IDLE = {name: Goal(f"wake-ups of the idle {name}", bound, PER_SECOND)
        for name, bound in (("agent", 4), ("guard", 0), ("daemon", 4))}

HOST_KILLED = FaultGoal("host killed, to the last first instruction", 5, SECONDS, statistics.median)
AGENT_KILLED = FaultGoal("agent killed, to the last first instruction", 1, SECONDS, statistics.median)
OVERLAP = "cut of {} s: steps of an older generation beside a newer one"
BACK = "cut of {} s: healed node known to the daemon again"
CONNECTION_BROKEN = FaultGoal("connection broken at one end, in one job: restarts", 0, COUNT)
AGENT_STOPPED = FaultGoal("agent stopped for 2 s: losses", 0, COUNT)
AGENT_STOPPED_LONGER = FaultGoal("agent stopped for 5 s, --scale-up at-restart: restarts", 1, COUNT)
DAEMON_STOPPED = "daemon stopped for {} s beside train: {}"
NEWCOMERS = FaultGoal("62 newcomers, one a second: worker groups", 3, COUNT)
BREAKER = FaultGoal("node that dies 2 s after each start: worker groups", 5, COUNT)
ABORTED = FaultGoal("abort to 1,000 agents", 100, MILLISECONDS, statistics.median)
