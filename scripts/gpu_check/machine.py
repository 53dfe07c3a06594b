"""Machine: the devices, programs and libraries that the checks use."""
import os
import pathlib
import re
import subprocess
import sys

from gpu_check import processes

# NCCL takes ranks of one host on one device for a mistake, but not those of several hosts; and what differs in NCCL_HOSTID is
# another host. They talk over sockets, and the device runs them in turns of some milliseconds: this is for results, deadlines and
# aborts, not for times.
OVER_SOCKETS = {
    "NCCL_NET": "Socket", "NCCL_SOCKET_IFNAME": "=lo", "NCCL_IB_DISABLE": "1", "NCCL_MNNVL_ENABLE": "0", "NCCL_NVLS_ENABLE": "0",
    "NCCL_RAS_ENABLE": "0", "NCCL_MAX_CTAS": "2",
}
AS_HOST = "export NCCL_HOSTID=rank-$RANK LOCAL_RANK=0; "
RUN = 'exec "$@"'
# A rank that a test kills is no failed worker: ddprun would stop the others, and they have to see for themselves that it is gone.
RUN_AND_MAY_DIE = '"$@"; code=$?; [ $code = 137 ] && exit 0; exit $code'
SLOWNESS = 4  # of a dry run, beside other tests on a few cores
SHORT = "GPU_CHECK_SHORT"  # to the programs: few repetitions


class Missing(Exception):
    """There is nothing here to check with."""


def ask(command, seconds=20):
    """Returns the output of a short command; "" if it fails or hangs."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=seconds)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def pythons():
    """Returns the Pythons in which packages are looked for."""
    return [python for python in (os.environ.get("PYTHON"), sys.executable, "python3") if python]


def linker_finds(library, environment):
    load = f"import ctypes; ctypes.CDLL({library!r})"
    return subprocess.run([sys.executable, "-c", load], stdin=subprocess.DEVNULL, capture_output=True, env=environment, timeout=60,
                          check=False).returncode == 0


class Machine:
    def __init__(self, programs, tests, libraries, log, dry_run=None):
        """programs, tests: folders of the programs; libraries: for LD_LIBRARY_PATH; dry_run: the folder of fake libraries."""
        self.programs, self.tests, self.libraries, self.log = programs, tests, libraries, log
        self.dry_run = dry_run
        self.short = bool(dry_run)
        self.slowness = SLOWNESS if dry_run else 1
        self.environment = dict(os.environ, LD_LIBRARY_PATH=os.pathsep.join(filter(None, libraries)))
        self.environment.setdefault("NCCL_DEBUG", "WARN")
        if dry_run:
            self.environment["DDPRUN_NCCL_LIBRARY"] = str(dry_run / "libnccl.so.2")
            self.environment["DDP_FAKE_CUDA_DEVICES"] = "1"
        if self.short:
            self.environment[SHORT] = "1"
        elif not {"DDPRUN_NCCL_LIBRARY", "NCCL_HOME"} & set(os.environ) and not linker_finds("libnccl.so.2", self.environment):
            for folder in self.python_libraries():  # also of a Python whose environment is not active
                if (folder / "libnccl.so.2").exists():
                    self.environment["DDPRUN_NCCL_LIBRARY"] = str(folder / "libnccl.so.2")
        self.devices = [f"simulated by {dry_run}"] if dry_run else self.list_devices()
        self.start_problem = None  # unknown yet

    @staticmethod
    def list_devices():
        try:
            done = subprocess.run(["nvidia-smi", "-L"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  text=True, errors="replace", timeout=60)
        except FileNotFoundError:
            raise Missing("no GPU here: nvidia-smi, which comes with NVIDIA's driver, is not installed") from None
        except subprocess.TimeoutExpired:
            raise Missing("no GPU here: nvidia-smi -L does not answer within 60 s") from None
        devices = [line for line in done.stdout.splitlines() if line.startswith("GPU ")]
        if done.returncode != 0 or not devices:
            raise Missing(f"no GPU here: nvidia-smi -L says: {done.stdout.strip()}")
        return devices

    def run(self, command, seconds, environment):
        return processes.run([str(part) for part in command], seconds, {**self.environment, **environment}, self.log)

    def query(self, what, of="--query-gpu"):
        """Returns a list of nvidia-smi's values; "" in a dry run."""
        return "" if self.dry_run else ask(["nvidia-smi", f"{of}={what}", "--format=csv,noheader,nounits"])

    def tool(self, name):
        return self.programs / name

    def has_cases(self, spec):
        """Returns whether gpu_tests has a case that `spec` selects."""
        return bool(self.run([self.tests / "gpu_tests", "--list-test-names-only", spec], 20, {}).output.strip())

    def nccl_version(self):
        """Returns the version of the NCCL that ddp::ddp loads, as (2, 28, 9); (0,): unknown."""
        output = self.run([self.tests / "gpu_tests", "[facts]"], 20, {}).output
        found = re.search(r"fact NCCL (\d+)\.(\d+)\.(\d+)", output)
        return tuple(map(int, found.groups())) if found else (0,)

    def ranks(self, count, command, may_die=False, hosts=True, one_node=False, options=()):
        """Returns (command, environment) that run `command` as `count` ranks of one job, each with a device if there are enough.

        may_die   a rank that is killed does not end the others
        hosts     ranks that share a device are several hosts to NCCL; else it has to take them as they are
        one_node  they are one node to ddp::ddp, which then watches their processes; else each is an emulated node
        """
        one_node = one_node or not self.shares_device(count)
        nodes = ["--nproc-per-node", count] if one_node else ["--nnodes", count, "--local-nodes", "--nproc-per-node", 1]
        script = RUN_AND_MAY_DIE if may_die else RUN
        environment = {}
        if self.shares_device(count) and hosts:
            script, environment = AS_HOST + script, OVER_SOCKETS
        elif self.shares_device(count):
            environment = {"NCCL_MULTI_RANK_GPU_ENABLE": "1"}
        return [self.tool("ddprun"), "--label", *options, *nodes, "sh", "-c", script, "sh", *command], environment

    def shares_device(self, ranks):
        return len(self.devices) < ranks

    @staticmethod
    def python_libraries():
        """Returns the folders of libraries in Python's packages of NVIDIA, which come with PyTorch."""
        where = "import importlib.util as util; found = util.find_spec('nvidia'); print(*(found.submodule_search_locations if found else []))"
        roots = {root for python in pythons() for root in ask([python, "-c", where]).split()}
        return sorted(folder for root in roots for folder in pathlib.Path(root).glob("*/lib"))

    def cuda_version(self):
        match = re.search(r"CUDA Version: *([0-9.]+)", ask(["nvidia-smi"]))
        return match.group(1) if match else "unknown"

    def python(self, module):
        """Returns a Python that has `module`; None: there is none."""
        for candidate in pythons():
            if ask([candidate, "-c", f"import {module}; print(1)"], 60) == "1":
                return candidate
        return None


def find_libraries(folder, programs):
    """Returns the folders for LD_LIBRARY_PATH: the programs need those in folder/lib, and those in folder/runtime only if this
    machine's own are too old."""
    own = os.environ.get("LD_LIBRARY_PATH", "")
    problem = ""
    for libraries in ([f"{folder}/lib", own], [f"{folder}/runtime", f"{folder}/lib", own]):
        environment = dict(os.environ, LD_LIBRARY_PATH=os.pathsep.join(filter(None, libraries)))
        problem = ""
        for program in programs:
            try:
                done = subprocess.run([folder / "bin" / program, "--help"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                      env=environment, timeout=60)
            except OSError as error:
                problem = f"{program}: {error.strerror}"
                break
            if done.returncode != 0:
                problem = done.stderr.strip() or f"{program} --help ends with {done.returncode}"
                break
        if not problem:
            return libraries
    raise Missing(f"the programs in {folder} do not run here: {problem}")


def commit_of(root):
    return ask(["git", "-C", str(root), "describe", "--always", "--dirty"]) or "unknown"


def processes_named(name):
    """Returns whether a process with that command runs on this machine."""
    for path in pathlib.Path("/proc").glob("[0-9]*/comm"):
        try:
            if path.read_text().strip() == name[:15]:
                return True
        except OSError:
            pass
    return False
