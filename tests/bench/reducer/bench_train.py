#!/usr/bin/env python3
"""How much of the exchange of gradients `train` hides behind backward.

Runs the README's trainer with and without --no-overlap in turn and compares `exposed_ms` of its JSON: what the last rank
to end its backward waits for communication, the median over the steps. The goal of 8 ranks: less than 20 % of what it is
when nothing hides it.
"""

import argparse
import json
import os
import statistics
import sys
from pathlib import Path

sys.dont_write_bytecode = True  # nothing of a run stays in the tree
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "collectives"))
import programs  # noqa: E402

GOAL = 0.2
EIGHT = ["--nproc_per_node", "8"]
# name -> (options of ddprun, options of train)
JOBS = {"1 node x 2": (["--nproc_per_node", "2"], []),
        "1 node x 8": (EIGHT, []),
        "1 node x 8, 256 samples a rank": (EIGHT, ["--global-batch", "2048"]),
        "2 emulated nodes x 4": (["--nnodes", "2", "--nproc_per_node", "4", "--local-nodes"], [])}


def run(build, job, options, more):
    launch, model = JOBS[job]
    train = [str(build / "bin" / "ddprun"), *launch, str(build / "bin" / "train"), "--progress", "none", "--steps",
             str(options.steps), *model, *options.train, *more]
    said = programs.run([train], dict(os.environ), options.timeout)
    if not said:
        raise RuntimeError(f"{' '.join(train)} printed no JSON")
    return json.loads(said.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True, help="for example build/release")
    parser.add_argument("--jobs", nargs="+", choices=list(JOBS), default=list(JOBS), metavar="JOB", help=", ".join(JOBS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40, help="of one run")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for one run")
    parser.add_argument("--train", nargs=argparse.REMAINDER, default=[], help="options of train; the last one here")
    options = parser.parse_args()
    programs.require(options.build, ["bin/ddprun", "bin/train"], "ddprun train")
    try:
        compare(options)
    except RuntimeError as error:
        sys.exit(f"{Path(sys.argv[0]).name}: {error}")


def compare(options):
    """Prints a line of the table for each job."""
    print("| train | exposed ms, after backward | overlapped | share | goal: less than 0.2 | samples/s | overlapped |\n"
          + "|---" * 7 + "|")
    for job in options.jobs:
        after, overlapped = [], []
        for _ in range(options.rounds):
            overlapped.append(run(options.build.resolve(), job, options, []))
            after.append(run(options.build.resolve(), job, options, ["--no-overlap"]))
        exposed = [statistics.median(one["exposed_ms"] for one in kind) for kind in (after, overlapped)]
        speed = [statistics.median(one["samples_per_s"] for one in kind) for kind in (after, overlapped)]
        share = exposed[1] / exposed[0]
        print(f"| {job} | {exposed[0]:.2f} | {exposed[1]:.2f} | {share:.2f} | {'yes' if share < GOAL else '**no**'} "
              f"| {speed[0]:.0f} | {speed[1]:.0f} |", flush=True)


if __name__ == "__main__":
    main()
