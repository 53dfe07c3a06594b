"""The table of the checks, the same as JSON, and the exit code."""
import json
import textwrap

from gpu_check.trial import FAILED, NOT_TRIED, PASSED

VERSION = 1  # of the JSON
ALL_PASSED, SOME_FAILED, SOME_NOT_TRIED = 0, 1, 3
COLUMNS = {"no": 2, "check": 26, "expected": 36, "seen": 58, "verdict": 30}
NOT_ON_ONE_CARD = "device indices other than 0, P2P, NVLink, NVLS, symmetric kernels between GPUs, bus bandwidth"


def row_of(trial, seconds, dry_run):
    verdict, reason = trial.verdict()
    return {"number": trial.check.number, "check": trial.check.name, "expected": trial.check.expected,
            "seen": trial.seen, "figures": trial.figures, "verdict": verdict, "reason": reason, "seconds": round(seconds, 1),
            "dry_run": bool(dry_run)}


def row_not_tried(check, reason):
    return {"number": check.number, "check": check.name, "expected": check.expected, "seen": [], "figures": [],
            "verdict": NOT_TRIED, "reason": reason, "seconds": 0, "dry_run": False}


def cells_of(row):
    verdict = row["verdict"] + (f": {row['reason']}" if row["reason"] else "") + (" (dry run)" if row["dry_run"] else "")
    return [str(row["number"]), row["check"], row["expected"], "; ".join(row["seen"]) or "-", verdict]


def wrapped(cells):
    columns = [textwrap.wrap(cell, width, break_on_hyphens=False) or [""] for cell, width in zip(cells, COLUMNS.values())]
    height = max(map(len, columns))
    for index in range(height):
        texts = [column[index] if index < len(column) else "" for column in columns]
        yield "  ".join(text.ljust(width) for text, width in zip(texts, COLUMNS.values())).rstrip()


def table(rows):
    lines = [*wrapped(list(COLUMNS)), *wrapped(["-" * width for width in COLUMNS.values()])]
    for row in rows:
        lines += wrapped(cells_of(row))
    return "\n".join(lines)


def count(rows, verdict):
    return sum(row["verdict"] == verdict for row in rows)


def exit_code(rows):
    if count(rows, FAILED):
        return SOME_FAILED
    return SOME_NOT_TRIED if count(rows, NOT_TRIED) or not rows else ALL_PASSED


def last_line(rows):
    return f"gpu-check: {count(rows, PASSED)} passed, {count(rows, FAILED)} failed, {count(rows, NOT_TRIED)} not tried"


def write_json(path, machine, rows):
    """Writes all rows so far: a run that is ended early leaves what it has seen."""
    summary = {verdict.replace(" ", "_"): count(rows, verdict) for verdict in (PASSED, FAILED, NOT_TRIED)}
    text = json.dumps({"version": VERSION, "machine": machine, "checks": rows, "summary": summary,
                       "not_on_one_card": NOT_ON_ONE_CARD}, indent=1, ensure_ascii=False)
    partial = path.with_suffix(".part")
    partial.write_text(text + "\n", encoding="utf-8")
    partial.rename(path)


def read_json(paths):
    """Returns the rows of several files by number; of a check that is in two, that of the later file."""
    rows = {}
    for path in paths:
        with open(path, encoding="utf-8") as file:
            rows.update({row["number"]: row for row in json.load(file)["checks"]})
    return [rows[number] for number in sorted(rows)]
