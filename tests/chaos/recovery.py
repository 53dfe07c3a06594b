"""What a fault has cost, from the times of steps and the events of the nodes. Pure functions."""

from dataclasses import dataclass, field

# Each ends where the next one begins; their sum is the time from the fault to the first step that is new.
PHASES = ("detect", "stop", "absent", "rendezvous", "pause", "start", "restore", "recompute")


@dataclass
class Recovery:
    fault: object
    began: float
    over: float  # the fault has ended: continued, healed, or every node runs its launcher again
    done: float  # the first step beyond those that were made before
    gap: float  # the longest time without a step
    restarted: bool  # the workers are others than before
    phases: dict = None  # of a restart, with the events of ddprun
    ended: dict = field(default_factory=dict)  # host -> exit code of its launcher
    orphans: list = field(default_factory=list)
    requeued: bool = False  # it did not recover within the limit

    def __str__(self):
        if self.requeued:
            return "did not recover within the limit; started again by force"
        text = "restarted: " if self.restarted else "went on: "
        if self.phases:
            text += " + ".join(f"{name} {seconds:.2f}" for name, seconds in self.phases.items() if seconds >= 0.005) + " = "
        if self.restarted:
            text += f"{self.done - self.began:.2f} s; "
        text += f"{self.gap:.2f} s without a step"
        if self.ended:
            text += "; ended: " + ", ".join(f"{host} with {code}" for host, code in sorted(self.ended.items()))
        return text


def longest_gap(lines):
    """Returns the index of the step before which the longest time without a step has passed, and that time."""
    return max(((index, lines[index][0] - lines[index - 1][0]) for index in range(1, len(lines))), key=lambda gap: gap[1])


def first_new_step(lines):
    """Returns the time of the first step that was not made before the job resumed, or None.

    lines   (time, step, loss) since the fault. The job resumed with the last step that does not follow the one before or, if
            each does, after the longest time without a step.
    """
    if len(lines) < 2:
        return None
    resumed = max((index for index in range(1, len(lines)) if lines[index][1] != lines[index - 1][1] + 1), default=0)
    resumed = resumed or longest_gap(lines)[0]
    newest = max(step for _, step, _ in lines[:resumed])
    return next((time for time, step, _ in lines[resumed:] if step > newest), None)


def phases(began, over, done, events, times, hit=()):
    """Splits the time from `began` to `done` by PHASES; None if no group was started in it.

    detect      until the first node stops its workers
    stop        until the last process of the group is gone, on the nodes that were not hit
    absent      until the fault is over: the node is back
    rendezvous  until the last node has its assignment, or ddprun makes a pause
    pause       of ddprun, because the last groups ended soon after their start (docs/design/002), until the last assignment
    start       until the last worker is started
    restore     until the first step of the new group: ranks connect, the checkpoint is loaded
    recompute   until the first step that was not made before

    events   of all nodes, with `at`, `host`, `event`
    times    of all steps, ascending
    """
    def at(*names, until=done):
        return [event["at"] for event in events
                if event["event"] in names and began <= event["at"] <= until and event["host"] not in hit]
    started = [event["at"] for event in events if event["event"] == "workers_started" and began <= event["at"] <= done]
    if not started:
        return None
    started = max(started)
    assigned = max([event["at"] for event in events if event["event"] == "assigned" and began <= event["at"] <= started],
                   default=started)
    detected = min(at("stopping", "stopped", "verdict", until=assigned), default=assigned)
    stopped = max(at("stopped", until=assigned), default=detected)
    returned = max(stopped, min(over, assigned))
    pauses = [event["at"] for event in events if event["event"] == "waiting" and "; a pause of " in event["reason"]
              and began <= event["at"] <= assigned]
    paused = max(returned, min(pauses, default=assigned))
    first = next(time for time in times if time >= started)
    bounds = [began, detected, stopped, returned, paused, assigned, started, first, done]
    return {name: max(0.0, end - begin) for name, begin, end in zip(PHASES, bounds, bounds[1:])}
