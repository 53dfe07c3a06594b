"""A job on virtual hosts, with an operator that starts a launcher again whenever it has ended, as a scheduler would."""

import json
import os
import secrets
import signal
import subprocess
import time
from collections import namedtuple
from datetime import datetime
from pathlib import Path

from losses import LossReader

Process = namedtuple("Process", "pid host words environment")
MARK = "DDPRUN_CHAOS"
PAUSE = 1.0  # seconds between two starts of a launcher on one host, at least


class DidNotRecover(Exception):
    """The job made no progress within a limit."""


def processes(marker):
    """Every living process of the job, on whichever host, by a variable in its environment."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            entries, words = ((folder / name).read_bytes().decode(errors="replace").split("\0")
                              for name in ("environ", "cmdline"))
        except OSError:  # it has ended
            continue
        environment = dict(entry.split("=", 1) for entry in entries if "=" in entry)
        mark, _, host = environment.get(MARK, "").partition(":")
        if mark == marker:
            found.append(Process(int(folder.name), host, words, environment))
    return found


class Job:
    """Starts the launcher on each host; `poll` does what an operator does. Everything ends with the `with` block."""

    def __init__(self, hosts, launcher, trainer, workers, folder):
        self.hosts, self.launcher, self.workers, self.folder = hosts, launcher, workers, folder
        self.words = [*launcher.words(hosts.names, workers), *trainer]
        self.marker = secrets.token_hex(8)
        self.losses = LossReader(folder / "losses")
        self.events, self._events_read = [], 0
        self.launched = {}  # host -> subprocess of its launcher
        self.started_at = {}
        self.ends = []  # (time, host, exit code), except of hosts that were killed
        self.down = set()
        self.succeeded = set()
        self.control_groups = set()

    def __enter__(self):
        for host in self.hosts.names:
            self.start(host)
        return self

    def __exit__(self, *_):
        self.kill_all()
        self.losses.close()
        for group in self.control_groups:  # of hosts that were killed: a real one begins without any
            try:
                os.rmdir(group)
            except OSError:
                pass

    def start(self, host):
        environment = {**self.hosts.environment, **self.launcher.environment, "OMP_NUM_THREADS": "1", "HOME": str(self.folder),
                       MARK: ""}
        words = self.hosts.on(host, ["env", f"{MARK}={self.marker}:{host}", *self.words])
        with open(self.folder / f"{host}.out", "ab") as out, open(self.folder / f"{host}.log", "ab") as log:
            self.launched[host] = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=log,
                                                   start_new_session=True, cwd=self.folder)
        self.started_at[host] = time.time()

    def poll(self):
        """Starts a launcher that has ended again, unless its host is down or it has succeeded. Reads new events."""
        for host, process in self.launched.items():
            code = process.poll()
            if code is None or host in self.down or host in self.succeeded:
                continue
            if code == 0:
                self.succeeded.add(host)
                continue
            if time.time() < self.started_at[host] + PAUSE:
                continue
            self.ends.append((time.time(), host, code))
            self.start(host)
        self._read_events()

    def _read_events(self):
        if self.launcher.events is None or not self.launcher.events.exists():
            return
        with open(self.launcher.events, "rb") as file:
            file.seek(self._events_read)
            data = file.read()
        data = data[:data.rfind(b"\n") + 1]
        self._events_read += len(data)
        for line in data.decode(errors="replace").splitlines():
            event = json.loads(line)
            event["at"] = datetime.fromisoformat(event["time"].replace("Z", "+00:00")).timestamp()
            self.events.append(event)

    def wait(self, seconds=None, until=None, limit=None):
        """Polls for `seconds`, or until the condition is true. Raises DidNotRecover at the limit."""
        begin = time.time()
        while True:
            self.poll()
            if until is not None and until() or seconds is not None and time.time() - begin >= seconds:
                return
            if limit is not None and time.time() - begin > limit:
                raise DidNotRecover(f"no progress within {limit:g} s")
            time.sleep(0.005 if seconds is None else max(0.0, min(0.005, begin + seconds - time.time())))

    def step(self):
        return self.losses.lines[-1][1] if self.losses.lines else 0

    def processes(self):
        found = processes(self.marker)
        for process in found:
            if "--group" in process.words:
                self.control_groups.add(process.words[process.words.index("--group") + 1])
        return found

    def by_role(self, role, host=None):
        return [process for process in self.processes()
                if self.launcher.role(process) == role and host in (None, process.host)]

    def worker_pids(self):
        return {process.pid for process in self.by_role("worker")}

    def orphans(self):
        return superseded(self.processes(), self.launcher.role, lambda process: start_time(process.pid))

    def kill_all(self):
        while left := self.processes():
            for process in left:
                kill(process.pid)
            time.sleep(0.02)
        for process in self.launched.values():
            process.wait()

    def logs(self):
        """Returns the last lines of each launcher."""
        logs = {host: (self.folder / f"{host}.log").read_text(errors="replace") for host in self.launched}
        return "".join(f"{host}:\n{log[-1500:]}\n" for host, log in logs.items())

    def requeue(self):
        """Ends everything by force and starts the job again, from its newest checkpoint."""
        self.kill_all()
        self.succeeded.clear()
        for host in self.hosts.names:
            self.start(host)


def superseded(processes, role, age):
    """Returns the processes whose place a newer one has: on each host there is one of each role, and one worker of each local
    rank."""
    places = {}
    for process in processes:
        places.setdefault((process.host, role(process), process.environment.get("LOCAL_RANK")), []).append(process)
    return [process for members in places.values() for process in sorted(members, key=age)[:-1]]


def start_time(pid):
    """When the process began, in ticks since the machine's start; 0: it has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return 0


def kill(pid, number=signal.SIGKILL):
    try:
        os.kill(pid, number)
    except ProcessLookupError:  # it has ended by itself
        pass
