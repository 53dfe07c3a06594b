"""Starting tiny workers under a launcher, and the time stamps that they leave (records.hpp)."""

import mmap
import os
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from dataclasses import dataclass

MAX_RECORDS = 4096
HEAD = struct.Struct("=II")
RECORD = struct.Struct("=qqqq")
LIMIT = 60.0  # seconds for one job
LOGS = ["-r", "1", "-t", "1"]  # under Python 3.11 the torchrun of Debian's PyTorch 1.13 fails without both


def milliseconds(nanoseconds):
    return nanoseconds / 1e6


def wait_until(condition, what, limit=LIMIT):
    """Polls `condition` without a pause longer than 0.2 ms. Raises RuntimeError at the limit."""
    deadline = time.monotonic() + limit
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what}: not within {limit:g} s")
        time.sleep(0.0002)


@dataclass(frozen=True)
class Record:
    pid: int
    started: int
    signalled: int
    ended: int


class Records:
    """The file that the workers of one job map."""

    def __init__(self):
        # In shared memory: the first write of a worker must not wait for a disk.
        self._file = tempfile.NamedTemporaryFile(dir="/dev/shm", prefix="bench_launch-")
        self._file.truncate(HEAD.size + MAX_RECORDS * RECORD.size)
        self._memory = mmap.mmap(self._file.fileno(), 0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._memory.close()
        self._file.close()

    @property
    def path(self):
        return self._file.name

    def arrived(self):
        return HEAD.unpack_from(self._memory)[0]

    def all(self):
        return [Record(*RECORD.unpack_from(self._memory, HEAD.size + i * RECORD.size)) for i in range(self.arrived())]


def _torchrun():
    """/usr/bin/python3 is Debian's, for which python3-torch is."""
    known = subprocess.run(["/usr/bin/python3", "-c", "import torch.distributed.run"], capture_output=True)
    return known.returncode == 0


def launchers(build, before=None):
    """name -> the words before the worker's command, for a number of workers. Absent peers are left out."""
    found = {"ours": lambda count: [str(build / "bin" / "ddprun"), "--nproc-per-node", str(count)],
             "bare": lambda count: [str(build / "bench" / "bench_launch_bare"), str(count)]}
    if before:
        found["before"] = lambda count: [str(before / "bin" / "ddprun"), "--nproc-per-node", str(count)]
    if shutil.which("mpiexec.hydra"):
        found["hydra"] = lambda count: ["mpiexec.hydra", "-n", str(count)]
    if shutil.which("mpirun.openmpi"):
        as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        found["openmpi"] = lambda count: ["mpirun.openmpi", *as_root, "--oversubscribe", "-n", str(count)]
    if _torchrun():
        found["torchrun"] = lambda count: ["/usr/bin/python3", "-m", "torch.distributed.run", "--standalone", "--no_python",
                                           *LOGS, "--nproc_per_node", str(count)]
    return found


class Job:
    """A launcher and its workers; ended by force when the block is left early."""

    def __init__(self, launcher, worker, count=0):
        """The workers end when `count` have started; 0: at SIGTERM."""
        self.records = Records()
        self._folder = tempfile.TemporaryDirectory(prefix="bench_launch-")  # for what launchers leave in TMPDIR
        words = [*launcher, worker, self.records.path, str(count)]
        environment = {**os.environ, "TMPDIR": self._folder.name}
        self.began = time.monotonic_ns()
        self._process = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                         stderr=subprocess.PIPE, start_new_session=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._process.poll() is None:
            self.signal(signal.SIGTERM)
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process.stderr.close()
        self.records.__exit__()
        self._folder.cleanup()

    @property
    def pid(self):
        return self._process.pid

    def signal(self, number):
        self._process.send_signal(number)

    def wait_for_workers(self, count):
        def arrived():
            if self._process.poll() is not None and self.records.arrived() < count:
                raise RuntimeError(f"{' '.join(self._process.args)} ended: {self._process.stderr.read().decode()[-500:]}")
            return self.records.arrived() >= count
        wait_until(arrived, f"{count} workers")

    def wait(self):
        """Returns when the launcher ended."""
        _, errors = self._process.communicate(timeout=LIMIT)
        ended = time.monotonic_ns()
        self.errors = errors.decode(errors="replace")
        self.code = self._process.returncode
        return ended
