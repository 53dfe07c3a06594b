#!/usr/bin/env python3
"""Types each line of table.py under torchrun and under ddprun and compares what workers, console, files and caller see.

usage: parity.py --ddprun PATH [--torchrun VENV/bin/python [--record]] [TEXT…]

Without --torchrun the outcomes of torchrun come from torchrun.json beside this file, where --record has put them. TEXT:
only lines that contain it. Exit code 0: the differences are those of the table.
"""

import argparse
import concurrent.futures
import json
import os
import sys
from pathlib import Path

sys.dont_write_bytecode = True  # nothing of a test run stays in the tree

from compare import differences, normal  # noqa: E402
from launchers import Launcher  # noqa: E402
from table import LINES  # noqa: E402

RECORDED = Path(__file__).with_name("torchrun.json")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ddprun", required=True, type=Path)
    parser.add_argument("--torchrun", type=Path, metavar="VENV/bin/python", help="run torchrun of this Python")
    parser.add_argument("--record", action="store_true", help="keep what torchrun did in torchrun.json")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--verbose", action="store_true", help="print both outcomes of a line that fails")
    parser.add_argument("lines", nargs="*", metavar="TEXT")
    return parser.parse_args()


def outcomes(launcher, lines, jobs):
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        done = pool.map(lambda line: normal(launcher.run(line), line), lines)
        return {line.name: outcome for line, outcome in zip(lines, done)}


def recorded(lines):
    known = json.loads(RECORDED.read_text())
    missing = [line.name for line in lines if line.name not in known]
    if missing:
        sys.exit(f"parity: {RECORDED.name} lacks {missing[0]}; record it with --torchrun and --record")
    return known


def record(stock):
    """Keeps one line of text for each line of the table, so that a change of one is a change of one."""
    known = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    names = [line.name for line in LINES]
    known = {name: {**known, **stock}[name] for name in names if name in known or name in stock}
    texts = [f"{json.dumps(name)}: {json.dumps(outcome, sort_keys=True)}" for name, outcome in known.items()]
    RECORDED.write_text("{\n" + ",\n".join(texts) + "\n}\n")


def report(line, stock, ours, verbose):
    """Prints how the line differs from what the table says; returns whether it does."""
    found = differences(stock[line.name], ours[line.name])
    unexpected = [point for point in found if point not in line.differs]
    vanished = [point for point in line.differs if point not in found]
    if not unexpected and not vanished:
        return False
    print(f"FAILED: {line.name}")
    for point in unexpected:
        print(f"    differs without a reason: {point}")
    for point in vanished:
        print(f"    differs no longer: {point}")
    if verbose:
        print("    torchrun:", json.dumps(stock[line.name], indent=1))
        print("    ddprun:", json.dumps(ours[line.name], indent=1))
    return True


def main():
    arguments = parse_arguments()
    lines = [line for line in LINES if not arguments.lines or any(text in line.name for text in arguments.lines)]
    if arguments.torchrun is None:
        lines = [line for line in lines if not line.depends_on_machine]
    if not lines:
        sys.exit(f"parity: no line has {' or '.join(arguments.lines)}")

    python = arguments.torchrun.absolute() if arguments.torchrun else Path(sys.executable)
    # Workers of both run under the Python that has the PyTorch to compare with, and the one of the recorder.
    environment = {**os.environ, "PYTHON_EXEC": str(python)}
    if arguments.torchrun:
        torchrun = Launcher("torchrun", [str(python), "-m", "torch.distributed.run"], environment)
        stock = outcomes(torchrun, lines, arguments.jobs)
        if arguments.record:
            record(stock)
    else:
        stock = recorded(lines)
    ours = outcomes(Launcher("ddprun", [str(arguments.ddprun.absolute())], environment), lines, arguments.jobs)
    failed = [line for line in lines if report(line, stock, ours, arguments.verbose)]
    print(f"parity: {len(lines)} lines, {len(lines) - len(failed)} as the table says")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
