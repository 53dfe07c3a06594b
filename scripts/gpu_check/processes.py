"""Runs a program with a time limit. A program that hangs is ended with all processes that it has started."""
import ctypes
import os
import pathlib
import signal
import subprocess
import time

PR_SET_CHILD_SUBREAPER = 36
TERM_SECONDS = 3  # for ddprun to report what its workers were doing
KILL_SECONDS = 2  # a process that is inside the driver may not end at all
KEPT_BYTES = 4 << 20  # of one program's output, for the checks that read it


def adopt_orphans():
    """Makes this process the parent of all orphans below it, so that descendants() finds each process that a check has left."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants():
    """Returns {pid: command} of all living processes below this one."""
    parents, commands = {}, {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            head, _, tail = (folder / "stat").read_text(errors="replace").rpartition(")")
        except OSError:
            continue  # it has ended
        state, parent = tail.split()[:2]
        if state not in "ZX":
            parents[int(folder.name)] = int(parent)
            commands[int(folder.name)] = head.partition("(")[2]
    found, generation = {}, [os.getpid()]
    while generation:
        generation = [pid for pid, parent in parents.items() if parent in generation]
        found.update({pid: commands[pid] for pid in generation})
    return found


def reap_orphans():
    try:
        while os.waitpid(-1, os.WNOHANG)[0] != 0:
            pass
    except ChildProcessError:
        pass


def end_all(seconds=KILL_SECONDS):
    """Kills every descendant. Returns those that did not end: {pid: command}."""
    deadline = time.monotonic() + seconds
    while True:
        left = descendants()
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        reap_orphans()
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.05)


class Outcome:
    """The result of one program. `problem` is empty if it ended with 0 and left no process behind."""

    def __init__(self, code, seconds, output, problem):
        self.code, self.seconds, self.output, self.problem = code, seconds, output, problem


def run(command, seconds, environment, log):
    """Runs `command` for `seconds` at most; its output goes to the file `log`, at its end. Returns an Outcome."""
    begin = time.monotonic()
    with open(log, "ab") as file:
        file.write(f"\n$ {' '.join(map(str, command))}\n".encode())
        file.flush()
        start = file.tell()
        try:
            program = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, env=environment)
        except OSError as error:
            return Outcome(127, 0, "", f"{command[0]} does not start: {error.strerror}")
        problem = ""
        try:
            code = program.wait(max(seconds, 0.1))
        except subprocess.TimeoutExpired:
            problem = f"not done after {seconds:.0f} s"
            program.terminate()
            try:
                program.wait(TERM_SECONDS)
            except subprocess.TimeoutExpired:
                program.kill()
            code = None
        deadline = time.monotonic() + KILL_SECONDS  # guards and daemons end a moment after ddprun
        while descendants() and not problem and time.monotonic() < deadline:
            time.sleep(0.02)
        left = descendants()
        survivors = end_all()
        if code is None:
            code = program.poll()
        if survivors:
            problem += f"{'; ' if problem else ''}could not be killed: {', '.join(sorted(set(survivors.values())))}"
        elif left and not problem:
            problem = f"left processes behind: {', '.join(sorted(set(left.values())))}"
    with open(log, "rb") as file:
        file.seek(start)
        output = file.read(KEPT_BYTES).decode(errors="replace")
    if not problem and code != 0:
        problem = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return Outcome(code, time.monotonic() - begin, output, problem)
