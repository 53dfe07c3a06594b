#!/usr/bin/env python3
"""Real PyTorch against our store (`ddprund --store`): every method of its client, process groups,
DistributedDataParallel and stock torchrun agents. Works with every PyTorch from 1.13 on; run it with the Python that
has the one to test.

usage: interop.py --ddprund PATH [--verbose] [CASE…]

Exit code 0: all passed; 77: this Python has no PyTorch to test with. PyTorch is imported once; each case then runs in
a forked child of its own, with a deadline.
"""

import argparse
import contextlib
import faulthandler
import os
import signal
import sys
import tempfile
import time
import traceback

sys.dont_write_bytecode = True  # nothing of a test run stays in the tree
# Before PyTorch is loaded. Ranks are forked, and share few cores.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # what is refused on purpose would fill pages with stack traces
os.environ.setdefault("TORCH_SHOW_CPP_STACKTRACES", "0")
# PyTorch looks up the names of its peers. Where no name server answers, each look-up would take 5 s and more.
os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")


def import_torch():
    try:
        import torch
        import torch.distributed
    except ImportError as error:
        print(f"SKIPPED: {sys.executable} has no PyTorch that can be imported: {error}")
        sys.exit(77)
    if not torch.distributed.is_available():
        print(f"SKIPPED: PyTorch {torch.__version__} of {sys.executable} was built without torch.distributed")
        sys.exit(77)
    return torch


def descendants_of_case(mark):
    """Programs that a case started carry its mark in their environment, also those in sessions of their own: stock
    torchrun gives one to each worker."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as environment:
            if mark.encode() in environment.read().split(b"\0"):
                yield int(pid)


def run_child(function, log, deadline, mark):
    """In the child: never returns. A session of its own, so that all it started can be ended with it."""
    code = 1
    try:
        os.setsid()
        os.environ.update([mark.split("=")])
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        faulthandler.dump_traceback_later(deadline - 1, exit=False, file=sys.stderr)
        function()
        code = 0
    except BaseException:  # noqa: BLE001 - the parent must hear of it, whatever it is
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


class Case:
    """One test in a forked child."""

    def __init__(self, name, function, deadline):
        self.name, self.deadline = name, deadline
        self.log = tempfile.TemporaryFile("w+")
        self.began = time.monotonic()
        self.mark = f"INTEROP_CASE={os.getpid()}-{time.monotonic_ns()}"
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            run_child(function, self.log, deadline, self.mark)

    def poll(self):
        """None while it runs, then how it ended: the empty string for success."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid == 0:
            if time.monotonic() - self.began < self.deadline:
                return None
            self.kill()
            os.waitpid(self.pid, 0)
            return f"no end after {self.deadline} s"
        self.kill()
        code = os.waitstatus_to_exitcode(status)
        return "" if code == 0 else f"exit code {code}"

    def kill(self):
        """Ends all that belongs to it, also ranks that a failed case has left behind."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        while left := list(descendants_of_case(self.mark)):  # again, for one may have started another meanwhile
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)

    def output(self):
        self.log.seek(0)
        return self.log.read()


def report(case, end, verbose):
    print(f"{'FAILED' if end else 'ok    '} {time.monotonic() - case.began:5.1f} s  {case.name}")
    for line in case.output().splitlines():
        if end or verbose or line.startswith("SUMMARY"):
            print(f"         {line}")
    if end:
        print(f"         {end}")


def run_cases(cases, width, verbose):
    """Up to `width` at a time. Returns the names of those that failed."""
    failed, running, waiting = [], [], list(cases)
    try:
        while running or waiting:
            while waiting and len(running) < width:
                running.append(Case(*waiting.pop(0)))
            for case in list(running):
                end = case.poll()
                if end is None:
                    continue
                running.remove(case)
                report(case, end, verbose)
                if end:
                    failed.append(case.name)
            time.sleep(0.02)
    finally:  # interrupted
        for case in running:
            case.kill()
    return failed


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--ddprund", required=True)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    if not os.access(arguments.ddprund, os.X_OK):
        sys.exit(f"interop.py: --ddprund {arguments.ddprund} is not a program; build the target ddprund")
    torch = import_torch()
    os.environ["DDPRUND"] = os.path.abspath(arguments.ddprund)

    import cases

    chosen = [case for case in cases.all_cases() if not arguments.names or any(n in case[0] for n in arguments.names)]
    if not chosen:
        sys.exit(f"interop.py: no case has {' or '.join(arguments.names)} in its name")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    began = time.monotonic()
    print(f"PyTorch {torch.__version__}, Python {sys.version.split()[0]}, {arguments.ddprund}")
    failed = run_cases(chosen, 2, arguments.verbose)
    print(f"{len(chosen) - len(failed)} of {len(chosen)} cases passed in {time.monotonic() - began:.1f} s")
    for name in failed:
        print(f"failed: {name}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
