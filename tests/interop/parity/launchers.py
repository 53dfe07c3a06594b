"""Runs one line of the table under a launcher, and describes what happened without ports, paths and random names."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROBE = Path(__file__).with_name("probe.py")
LIMIT_SECONDS = 90
# Variables of the worker that a launcher sets. Everything else is inherited, and must be as it was.
SET_BY_LAUNCHER = re.compile(
    r"(RANK|LOCAL_|WORLD_SIZE|GROUP_|ROLE_|MASTER_|TORCHELASTIC_|TORCH_NCCL|OMP_|CUDA_VISIBLE|HIP_VISIBLE|DDPRUN_)"
)
# A line of a worker, with a label if there is one. The box of ddprun quotes such lines behind " | ".
PRINTED = re.compile(r"(?! *\| ).*probe (out|err) \d+$")


class Launcher:
    """`command` is what stands before the options; `name` is "torchrun" or "ddprun"."""

    def __init__(self, name, command, environment):
        self.name, self.command, self.environment = name, command, environment

    def run(self, line):
        with tempfile.TemporaryDirectory(prefix="parity-") as folder:
            return Run(self, line, Path(folder)).outcome()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Run:
    """One line under one launcher, in a folder of its own."""

    def __init__(self, launcher, line, folder):
        self.launcher, self.line, self.folder = launcher, line, folder
        self.port = free_port()
        for name in ("cwd", "probes", "tmp"):
            (folder / name).mkdir()
        for name in ("probe.py", "probe"):
            (folder / "cwd" / name).write_bytes(PROBE.read_bytes())
        (folder / "cwd/probe.sh").write_text('#!/bin/sh\nexec "${PYTHON_EXEC:-python3}" probe.py "$@"\n')
        (folder / "cwd/probe.sh").chmod(0o755)
        (folder / "cwd/plain.txt").write_text("not a folder\n")

    def fill(self, text):
        text = text.replace("{port}", str(self.port)).replace("{folder}", str(self.folder / "cwd"))
        return text.replace("{python}", sys.executable)  # not a name: a shim of that name may set variables

    def variables(self):
        variables = {k: v for k, v in self.launcher.environment.items() if not SET_BY_LAUNCHER.match(k)}
        variables.update(PARITY_FOLDER=str(self.folder / "probes"), TMPDIR=str(self.folder / "tmp"), LOGLEVEL="ERROR")
        variables.update({name: self.fill(value) for name, value in self.line.environment.items()})
        return variables

    def start(self, node):
        words = [self.fill(word.replace("{node}", str(node))) for word in self.line.words]
        streams = [open(self.folder / f"{stream}-{node}", "w") for stream in ("stdout", "stderr")]
        try:
            return subprocess.Popen(
                [*self.launcher.command, *words],
                cwd=self.folder / "cwd",
                env=self.variables(),
                stdin=subprocess.DEVNULL,
                stdout=streams[0],
                stderr=streams[1],
                start_new_session=True,
            )
        finally:
            for stream in streams:
                stream.close()

    def outcome(self):
        nodes = [self.start(node) for node in range(self.line.nodes)]
        try:
            if self.line.signal:
                self.send(nodes)
            deadline = time.monotonic() + LIMIT_SECONDS
            codes = []
            for node in nodes:
                try:
                    codes.append(node.wait(max(0.1, deadline - time.monotonic())))
                except subprocess.TimeoutExpired:
                    codes.append("still runs")
        finally:
            self.end(nodes)
        return self.described(codes)

    def send(self, nodes):
        """Sends the line's signal to the first launcher when all workers wait for it, or the launcher has ended."""
        while nodes[0].poll() is None and len(list((self.folder / "probes").glob("waits-*"))) < self.line.workers:
            time.sleep(0.02)
        nodes[0].send_signal(getattr(signal, self.line.signal))

    def end(self, nodes):
        """Kills what is left of a line: every process that inherited the folder of this run."""
        mark = f"PARITY_FOLDER={self.folder}/probes".encode()
        for node in nodes:
            if node.poll() is None:
                node.kill()
            node.wait()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    os.kill(int(pid), signal.SIGKILL)

    # What happened, as text that another run of the same line repeats.

    def neutral(self, text):
        text = text.replace(str(self.folder), "FOLDER").replace(str(self.port), "PORT")
        text = text.replace(socket.getfqdn(), "HOST").replace(socket.gethostname(), "HOST")
        return text

    def environment(self, found):
        mine = self.variables()
        result = {}
        for name in sorted(set(found) | set(mine)):
            value = found.get(name)
            if value == mine.get(name) or name in ("_", "PWD", "SHLVL", "OLDPWD", "LC_CTYPE"):
                continue
            result[name] = "unset" if value is None else self.neutral(value)
        return result

    def worker(self, path):
        record = json.loads(path.read_text())
        record["environment"] = self.environment(record["environment"])
        return {name: self.neutral(value) if isinstance(value, str) else value for name, value in record.items()} | {
            "argv": [self.neutral(word) for word in record["argv"]]
        }

    def console(self, stream):
        """The lines of the workers, with their labels; the launchers' own messages differ, and are not compared."""
        text = "".join((self.folder / f"{stream}-{node}").read_text(errors="replace") for node in range(self.line.nodes))
        return sorted(self.neutral(line) for line in text.splitlines() if PRINTED.match(line))

    def files(self):
        """Content of every log file by attempt, rank and kind; the layouts differ by intention."""
        result = {}
        for path in sorted((self.folder / "cwd/logs").rglob("*")):
            name = str(path.relative_to(self.folder / "cwd/logs"))
            theirs = re.search(r"attempt_(\d+)/(\d+)/(stdout|stderr)\.log$", name)
            ours = re.search(r"gen-(\d+)/rank-(\d+)\.(out|err)$", name)
            shared = re.search(r"filtered_(stdout|stderr)\.log$", name)
            if theirs:
                key = f"attempt {theirs[1]} rank {theirs[2]} {theirs[3]}"
            elif ours:
                key = f"attempt {int(ours[1]) - 1} rank {ours[2]} std{ours[3]}"
            elif shared:
                key = f"filtered {shared[1]}"
            else:
                continue
            lines = [line for line in path.read_text(errors="replace").splitlines() if PRINTED.match(line)]
            if lines:
                result[key] = sorted(lines)
        return result

    def error_file(self):
        """The shape of the launcher's own error file: its keys, the code, and the first line of the message."""
        path = self.folder / "cwd/error.json"
        if not path.exists():
            return None
        content = json.loads(path.read_text())
        message = content.get("message")
        if not isinstance(message, dict):
            return {"message": "text"}
        return {"errorCode": message.get("errorCode"), "message": str(message.get("message")).splitlines()[0]}

    def workers(self):
        """By attempt, then by rank: the n-th process of a rank is of the n-th attempt, whatever it is given as a count."""
        started = sorted((self.folder / "probes").glob("worker-*.json"), key=lambda path: path.stat().st_mtime_ns)
        attempts = {}
        keyed = []
        for worker in map(self.worker, started):
            rank = int(worker["environment"].get("RANK", -1))
            attempts[rank] = attempts.get(rank, 0) + 1
            keyed.append((attempts[rank], rank, worker))
        return [worker for _, _, worker in sorted(keyed, key=lambda key: key[:2])]

    def described(self, codes):
        probes = self.folder / "probes"
        return {
            "exit": codes,
            "workers": self.workers(),
            "signals": sorted(json.loads(path.read_text()) for path in probes.glob("signal-*.json")),
            "stdout": self.console("stdout"),
            "stderr": self.console("stderr"),
            "files": self.files(),
            "error file": self.error_file(),
            "left in the working directory": sorted(
                p.name for p in (self.folder / "cwd").iterdir()
                if p.name not in ("probe.py", "probe", "probe.sh", "plain.txt", "logs", "error.json", "__pycache__")
            ),
        }
