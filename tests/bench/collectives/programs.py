"""Running the peers' programs: all of a job at once, their figures, and nothing left of them whatever happens."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PATIENCE = 10.0  # seconds between asking a program to end, so that it can end its own, and killing it


def require(build, names, target):
    """Ends the script with one message unless these programs, named from the folder `build`, are there."""
    missing = [name for name in names if not (build / name).exists()]
    if not missing:
        return
    build_them = f"cmake --build {build} --target {target}"
    if not (build / "CMakeCache.txt").exists():  # nothing was ever built there
        build_them = f"cmake --preset release && cmake --build --preset release --target {target}"
        build_them += ", and pass --build build/release"
    root = Path(__file__).resolve().parents[3]
    print(f"{Path(sys.argv[0]).name}: {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not in {build}. "
          f"The benchmarks are built on request only; in {root}: {build_them}", file=sys.stderr)
    sys.exit(2)


def end(process):
    """Its session as well: launchers start ranks, and pass a SIGTERM on to them."""
    if process.poll() is not None:
        return
    for number, patience in ((signal.SIGTERM, PATIENCE), (signal.SIGKILL, None)):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            pass
        try:
            process.wait(patience)
            return
        except subprocess.TimeoutExpired:
            continue


def run(commands, environment, seconds):
    """What all of these print, started at once. Raises RuntimeError with the last words of those that fail, or when
    `seconds` have passed."""
    deadline = time.monotonic() + seconds
    running = []
    try:
        for words in commands:
            running.append(subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                            text=True, start_new_session=True))
        said = [process.communicate(timeout=max(deadline - time.monotonic(), 0.001)) for process in running]
    except OSError as error:  # of the command that follows those that run
        raise RuntimeError(f"cannot start {commands[len(running)][0]}: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{' '.join(commands[0])} took more than {seconds:g} s") from None
    finally:
        for process in running:
            end(process)
    failed = [f"{' '.join(words)} ended with {process.returncode}:\n{err[-2000:]}"
              for words, process, (_, err) in zip(commands, running, said) if process.returncode != 0]
    if failed:
        raise RuntimeError("\n".join(failed))
    return "".join(out for out, _ in said)


def parse_figures(text):
    """cell -> (median us, p99.9 us, ns between the CPUs before and after), from the lines of peer.hpp."""
    figures = {}
    for line in text.splitlines():
        cell, *numbers = line.split() or [""]
        try:
            figures[cell] = tuple(float(number) for number in numbers)
        except ValueError:
            numbers = []
        if len(numbers) != 4:
            raise RuntimeError(f"not a line of figures: {line}")
    return figures
