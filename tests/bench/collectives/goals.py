"""The goals of the collectives inside a node, and whether figures reach them. Pure: medians in, a table out."""

from dataclasses import dataclass

LEAST = {"ours": "bare", "foreign": "staged-floor"}  # columns of what does no more than has to be done
TUNED = ["openmpi-nocma", "openmpi-ring", "openmpi-huge"]  # Open MPI's best settings; the best of them is taken per cell


def best_tuned(median):
    """Of Open MPI's, as installed included; None where none was measured."""
    return min((median[name] for name in ("openmpi", *TUNED) if name in median), default=None)


@dataclass(frozen=True)
class Goal:
    """`measure` is what is compared: "A/B", both columns or "tuned"; "ours", microseconds; "late", p99.9 / median."""
    ranks: int
    cell: str
    measure: str
    bound: float
    at_most: bool = False
    state: str = ""  # of the caches; empty: both

    def value(self, median, late):
        """median: column -> microseconds; late: column -> p99.9 / median. None: not measured."""
        if self.measure == "late":
            return late.get("ours")
        return _quotient(self.measure.split("/"), median)

    def limit(self, median):
        """The value that would be reached with nothing around the collective itself. None: not measured, or no matter of it."""
        names = self.measure.split("/")
        if names[0] == "floor" or names[-1] not in LEAST:
            return None
        return _quotient([*names[:-1], LEAST[names[-1]]], median)

    def met(self, value):
        return value <= self.bound if self.at_most else value >= self.bound

    def text(self):
        what = {"ours": "µs", "late": "p99.9 / median"}.get(self.measure, self.measure)
        return f"{self.ranks} ranks, {self.cell}: {what} {'≤' if self.at_most else '≥'} {self.bound:g}"


def _quotient(names, median):
    known = {**median, "tuned": best_tuned(median)}
    parts = [known.get(name) for name in names]
    if None in parts:
        return None
    return parts[0] if len(parts) == 1 else parts[0] / parts[1]


def _ratios(ranks, cell, **bounds):
    return [Goal(ranks, cell, measure.replace("_", "/"), bound) for measure, bound in bounds.items()]


GOALS = [
    *_ratios(2, "all_reduce 26214400", openmpi_ours=4.5, tuned_ours=2.3, gloo_ours=13, floor_ours=0.9),
    *_ratios(2, "all_reduce 268435456", openmpi_ours=6, tuned_ours=1.8, floor_ours=0.9),
    *_ratios(2, "all_reduce 1048576", openmpi_ours=8, tuned_ours=3.5),
    *_ratios(2, "all_reduce 65536", openmpi_ours=15, tuned_ours=6),
    *_ratios(2, "all_reduce 8", openmpi_ours=1.8),
    *_ratios(2, "barrier 0", openmpi_ours=1.8),
    Goal(2, "all_reduce 8 x 100000", "late", 20, at_most=True),
    Goal(2, "all_reduce 26214400", "openmpi/foreign", 2.5, state="near"),
    Goal(2, "all_reduce 26214400", "tuned/foreign", 1.4, state="near"),
    Goal(2, "all_reduce 26214400", "openmpi/foreign", 1, state="far"),
    *_ratios(2, "all_reduce.f16 26214400", openmpi_ours=5),
    *_ratios(2, "all_reduce.bf16 26214400", openmpi_ours=5),
    *_ratios(2, "broadcast 26214400", tuned_ours=1),
    *_ratios(2, "gradients 0", openmpi_ours=3, tuned_ours=1.7, torch_ours=8),
    *_ratios(4, "all_reduce 26214400", openmpi_ours=6, tuned_ours=2.8, torch_ours=12),
    Goal(4, "all_reduce 8", "ours", 2.5, at_most=True),
    Goal(4, "all_reduce 8 x 100000", "late", 20, at_most=True),
]


def _verdict(goal, median, late):
    value = goal.value(median, late)
    if value is None:
        return "-"
    if goal.met(value):
        return f"yes: {value:.3g}"
    limit = goal.limit(median)
    beside = "" if limit is None else f" ({LEAST[goal.measure.split('/')[-1]]}: {limit:.3g})"
    return f"**no**: {value:.3g}{beside}"


def goals_table(ranks, figures):
    """figures: state of the caches -> cell -> (median, late), as Goal.value wants them. Empty without goals. Beside what
    is missed stands what bare processes reach, where these were measured."""
    goals = [goal for goal in GOALS if goal.ranks == ranks]
    states = sorted(figures)
    if not goals or not states:
        return ""
    lines = ["| goal | " + " | ".join(states) + " |", "|---" * (len(states) + 1) + "|"]
    for goal in goals:
        fields = [_verdict(goal, *figures[state].get(goal.cell, ({}, {}))) if goal.state in ("", state) else "-"
                  for state in states]
        lines.append(f"| {goal.text()} | " + " | ".join(fields) + " |")
    return "\n".join(lines)
