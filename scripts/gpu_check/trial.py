"""Trial: one check as it runs. It has the time that is left, collects what was seen, and gives the verdict.

Programs report by lines of their output:
    figure NAME VALUE UNIT [<=|>= BOUND]    a measured number, and the bound that it is expected to keep
    fact TEXT                               something else to be shown
    not tried: TEXT                         a part that could not be tried, and why
and the cases of gpu_tests by Catch2's "SKIPPED: why".
"""
import re
import time

from gpu_check import processes

PASSED, FAILED, NOT_TRIED = "passed", "failed", "not tried"

SKIPPED = 77  # the exit code of gpu_tests if all cases were skipped, each with a line
LINE = re.compile(r"^(?:\[[^\]]*\]:? )?\s*(figure|fact|not tried:|SKIPPED:) (.+?)\s*$", re.M)
FIGURE = re.compile(r"(\S+) (\S+) (\S+)(?: (<=|>=) (\S+))?$")


def compact(number):
    """Returns "12.3", "1,240" or "0.00213"."""
    if number == int(number) or abs(number) >= 1000:
        return f"{number:,.0f}"
    return f"{number:.3g}"


class Trial:
    def __init__(self, check, machine):
        self.check, self.machine = check, machine
        self.deadline = time.monotonic() + check.seconds * machine.slowness
        self.seen, self.failures, self.untried, self.figures = [], [], [], []

    def seconds_left(self):
        return self.deadline - time.monotonic()

    def see(self, text):
        if text and text not in self.seen:
            self.seen.append(text)

    def fail(self, text):
        if text not in self.failures:
            self.failures.append(text)

    def not_tried(self, text):
        if text not in self.untried:
            self.untried.append(text)

    def figure(self, name, value, unit, relation="", bound=None):
        """Adds a measured number. Bounds of times and rates mean nothing in a dry run: they are shown only."""
        kept = bound is None or (value <= bound if relation == "<=" else value >= bound)
        self.figures.append({"name": name, "value": value, "unit": unit, "relation": relation, "bound": bound, "kept": kept})
        number = f"{compact(value)}{'' if unit == 'x' else ' '}{unit}"
        limit = "" if bound is None else f" ({relation} {compact(bound)})"
        self.see(f"{name.replace('_', ' ')} {number}{limit}")
        if not kept and not self.machine.dry_run:
            self.fail(f"{name.replace('_', ' ')} is {number}, expected {relation} {compact(bound)}")

    def read(self, output):
        """Takes the lines for this script from a program's output."""
        for kind, text in LINE.findall(output):
            match = FIGURE.match(text)
            try:
                if kind == "figure" and match:
                    name, value, unit, relation, bound = match.groups()
                    self.figure(name, float(value), unit, relation or "", float(bound) if bound else None)
                elif kind == "figure":
                    raise ValueError
                elif kind == "fact":
                    self.see(text)
                else:
                    self.not_tried(text)
            except ValueError:
                self.fail(f"an unreadable figure: {text}")

    def program(self, command, seconds=None, environment=None, reads=True):
        """Runs a program, in the time that is left at most. Its failure is the check's. Returns its Outcome."""
        limit = min((seconds or self.check.seconds) * self.machine.slowness, self.seconds_left() - processes.TERM_SECONDS - processes.KILL_SECONDS)
        outcome = self.machine.run(command, limit, environment or {})
        if reads:
            self.read(outcome.output)
        if outcome.problem and outcome.code != SKIPPED:
            self.fail(f"{outcome.problem}: {first_complaint(outcome.output) or short(command)}")
        return outcome

    def verdict(self):
        """Returns (verdict, reason)."""
        if self.failures:
            return FAILED, "; ".join(self.failures)
        if self.untried:
            return NOT_TRIED, "; ".join(self.untried)
        return PASSED, ""


def short(command):
    return " ".join(str(part).rsplit("/", 1)[-1] for part in command[:6])


def first_complaint(output):
    """Returns the line of a failed program's output that says most: that of the failed assertion, of an error, or the last one."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for index, line in enumerate(lines):
        if "FAILED:" in line:
            return " ".join(lines[index + 1:index + 5])[:300]
    for line in lines:
        if re.search(r"\berror\b|cannot|failed|Error", line) and "test cases:" not in line:
            return line[:300]
    return lines[-1][:300] if lines else ""
