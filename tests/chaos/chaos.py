#!/usr/bin/env python3
"""Random faults in one long training job on virtual hosts: what is killed, stopped or separated, and when, follows from a seed.

The job first runs undisturbed. Then each step of the disturbed job is compared with it bit by bit, processes that outlive their
group are counted, and each recovery is timed by phase. Exit code 1 if a step differs, an orphan is found, or a fault has another
effect than documented; 77 without the tools for virtual hosts (DDPRUN_CLUSTER_TOOLS), or if not root.

    tests/chaos/chaos.py --build build/release --seed 1 --faults 20
    tests/chaos/chaos.py --launcher torchrun --trainer gloo --workers 1 --faults 90
"""

import argparse
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True  # nothing of a run stays in the tree
sys.path.append(str(Path(__file__).resolve().parent.parent / "bench" / "collectives"))
import launchers  # noqa: E402
import programs  # noqa: E402
from job import DidNotRecover  # noqa: E402
from plan import KINDS  # noqa: E402
from run import Run  # noqa: E402
from virtual_hosts import Hosts, require_tool  # noqa: E402


def positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return number


def parse_options(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=Path("build/release"), help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--faults", type=positive, default=20, help="default: %(default)s")
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS, metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--workers", type=positive, default=2, help="on each of the four hosts; default: %(default)s")
    parser.add_argument("--max-seconds", type=float, default=10, help="of faults that last, which last 1 s at least")
    parser.add_argument("--steps-per-fault", type=positive, default=60, help="the length of the job; default: %(default)s")
    parser.add_argument("--checkpoint-every", type=positive, default=10, metavar="STEPS")
    parser.add_argument("--rate", default="50mbit", help="of each host's network beside faults: steps take time, and little CPU "
                        "time; default: %(default)s")
    parser.add_argument("--limit", type=float, default=150, metavar="SECONDS",
                        help="until a job that does not recover is ended by force and started again; default: %(default)s")
    parser.add_argument("--launcher", choices=launchers.LAUNCHERS, default="ddprun")
    parser.add_argument("--trainer", choices=launchers.TRAINERS, default="train")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="a new folder for logs, events and checkpoints, which stays")
    options = parser.parse_args(arguments)
    if not set(options.only) & set(launchers.LAUNCHERS[options.launcher].kinds):
        parser.error(f"{options.launcher} has no process for {', '.join(options.only)}: pass other kinds with --only")
    if options.keep and options.keep.exists():
        parser.error(f"{options.keep} exists: pass another --keep")
    options.build = options.build.resolve()
    return options


def load():
    return " ".join(f"{average:.1f}" for average in os.getloadavg())


def main():
    options = parse_options(sys.argv[1:])
    tool = require_tool()
    programs.require(options.build, ["bin/ddprun", "bin/ddprund", "bin/ddprun-guard", "bin/train"], "ddprun train")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the hosts are removed
    with tempfile.TemporaryDirectory(prefix="ddprun-chaos-") as temporary:
        began = time.time()
        with Hosts(tool, Path(temporary) / "cluster", 4) as hosts:
            run = Run(options, hosts, (options.keep or Path(temporary)).resolve())
            print(f"seed {options.seed}, {options.faults} faults, 4 hosts with {options.workers} workers each, "
                  f"{options.launcher}, {options.trainer}; load averages {load()}", flush=True)
            try:
                run.disturbed(run.undisturbed())
            except (RuntimeError, DidNotRecover, subprocess.CalledProcessError) as error:
                run.problems.append(str(error))
            finally:
                run.print_end()
        print(f"{time.time() - began:.0f} s; load averages {load()}")
    if run.problems:
        words = sys.argv[1:] + ([] if "--seed" in sys.argv else ["--seed", str(options.seed)])
        print(f"repeat: tests/chaos/chaos.py {shlex.join(words)}")
    return 1 if run.problems else 0


if __name__ == "__main__":
    sys.exit(main())
