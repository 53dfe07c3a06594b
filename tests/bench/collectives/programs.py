"""Running the peers' programs: all of a job at once, their figures, and nothing left of them whatever happens."""

import os
import signal
import subprocess
import time

PATIENCE = 10.0  # seconds between asking a program to end, so that it can end its own, and killing it


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
