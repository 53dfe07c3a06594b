"""The worker of the parity lines: records what the launcher gave it, and ends as its arguments say.

It writes one file per process into $PARITY_FOLDER, prints a line to each stream, and then takes its arguments in turn:
`R:exit=N`, `R:signal=N`, `R:raise` and `R:twice` (exit 9 in the first attempt only) are for rank R, or for all ranks
where R is `*`; `wait` waits for a signal, which is recorded. Other arguments are recorded only.
"""

import json
import os
import signal
import sys
import time

FOLDER = os.environ["PARITY_FOLDER"]
RANK = os.environ.get("RANK", "none")
ATTEMPT = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")


def write(name, value):
    """A reader finds the whole file or none."""
    path = os.path.join(FOLDER, name)
    with open(f"{path}.{os.getpid()}.part", "w") as file:
        json.dump(value, file)
    os.replace(f"{path}.{os.getpid()}.part", path)


def wait_for_signal():
    signal.pthread_sigmask(signal.SIG_BLOCK, [getattr(signal, name) for name in SIGNALS])
    write(f"waits-{RANK}.json", True)
    got = signal.sigtimedwait([getattr(signal, name) for name in SIGNALS], 60)
    write(f"signal-{RANK}.json", signal.Signals(got.si_signo).name if got else "none")
    sys.exit(0)


def fail(what):
    """Ends this process in the way that `what` names. The other ranks are there by then, and wait to be stopped."""
    while len([name for name in os.listdir(FOLDER) if name.startswith("worker-") and name.endswith(f"-{ATTEMPT}.json")]) < int(
        os.environ["WORLD_SIZE"]
    ):
        time.sleep(0.01)
    kind, _, number = what.partition("=")
    if kind == "exit":
        sys.exit(int(number))
    if kind == "signal":
        os.kill(os.getpid(), int(number))
    if kind == "raise":
        trace = {"py_callstack": "Traceback", "timestamp": str(int(time.time()))}  # what @record of PyTorch writes
        error = {"message": {"message": "ValueError: this rank fails", "extraInfo": trace}}
        with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file:
            json.dump(error, file)
        sys.exit(1)
    if kind == "twice" and ATTEMPT == "0":
        sys.exit(9)


def main():
    print(f"probe out {RANK}", flush=True)
    print(f"probe err {RANK}", file=sys.stderr, flush=True)
    # Written last: a rank that fails waits for the files of all others, which have printed their lines by then.
    write(
        f"worker-{os.getpid()}-{ATTEMPT}.json",
        {
            "argv": sys.argv,
            "interpreter arguments": sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv)],
            "directory": os.getcwd(),
            "environment": dict(os.environ),
            "path": sys.path[0],
        },
    )
    for argument in sys.argv[1:]:
        rank, _, what = argument.partition(":")
        if argument == "wait":
            wait_for_signal()
        elif rank in (RANK, "*") and what.partition("=")[0] in ("exit", "signal", "raise", "twice"):
            fail(what)
        elif what.partition("=")[0] in ("exit", "signal", "raise"):
            time.sleep(60)  # for another rank's failure


if __name__ == "__main__":
    main()
