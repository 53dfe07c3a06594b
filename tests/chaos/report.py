"""The tables at the end."""

import math

from plan import ENDS_THE_DAEMON
from recovery import PHASES


def percentile(samples, share):
    """The smallest sample that `share` of all do not exceed: one of the samples."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def cell(samples):
    return f"{percentile(samples, 0.5):.2f} / {percentile(samples, 0.99):.2f}" if samples else ""


def table(recoveries, kinds):
    """p50 / p99 in seconds, a row for each kind of fault and outcome. Phases are known of restarts under ddprun only."""
    with_phases = any(recovery.phases for recovery in recoveries)
    names = PHASES if with_phases else ()
    columns = ["fault", "then the job", "times", *names, "fault to new step", "its end to new step", "without a step"]
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    for kind in kinds:
        for outcome in ("went on", "restarted", "ended, was started again", "did not recover"):
            rows = [recovery for recovery in recoveries if recovery.fault.kind == kind and outcome_of(recovery) == outcome]
            if not rows:
                continue
            cells = [kind, outcome, str(len(rows))]
            cells += [cell([row.phases[name] for row in rows if row.phases]) for name in names]
            again = [row for row in rows if row.restarted and not row.requeued]
            cells += [cell([row.done - row.began for row in again]), cell([max(0.0, row.done - row.over) for row in again]),
                      cell([row.gap for row in rows if not row.requeued])]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def outcome_of(recovery):
    if recovery.requeued:
        return "did not recover"
    if not recovery.restarted:
        return "went on"
    return "ended, was started again" if recovery.fault.kind in ENDS_THE_DAEMON else "restarted"
