"""How a launcher starts the job on one host, and which of its processes are which."""

import os
import secrets
from pathlib import Path

from plan import KINDS

LOGS = ["-r", "1", "-t", "1"]  # under Python 3.11 the torchrun of Debian's PyTorch 1.13 fails without both
PYTHON = "/usr/bin/python3"  # Debian's, which has torch


class Ddprun:
    """ddprun as a user types it, with one option for its events."""

    name, kinds = "ddprun", KINDS

    def __init__(self, build, folder):
        self.program, self.events = str(build / "bin" / "ddprun"), folder / "events"
        self.environment = {"DDPRUN_JOB_KEY": secrets.token_hex(32), "PYTHON_EXEC": PYTHON}

    @staticmethod
    def agents(hosts):
        return hosts

    def words(self, hosts, workers):
        return [self.program, "--nnodes", str(len(hosts)), "--nproc-per-node", str(workers), "--max-restarts", "1000000",
                "--rdzv-endpoint", f"{hosts[0]}:29400", "--events", str(self.events)]

    def role(self, process):
        """Returns guard, agent, daemon, worker, or the name of another program."""
        program = os.path.basename(process.words[0])
        if "RANK" in process.environment:
            return "worker"
        return {"ddprun-guard": "guard", "ddprund": "daemon", "ddprun": "agent"}.get(program, program)


class Torchrun:
    """Stock torchrun with its c10d rendezvous. The agent of the first host has the store, and there is no guard."""

    name = "torchrun"
    kinds = tuple(kind for kind in KINDS if not kind.startswith("guard"))

    def __init__(self, *_):
        self.events = None
        self.environment = {}

    @staticmethod
    def agents(hosts):
        return hosts[1:]

    def words(self, hosts, workers):
        return [PYTHON, "-m", "torch.distributed.run", "--nnodes", str(len(hosts)), "--nproc_per_node", str(workers),
                *LOGS, "--max_restarts", "1000000", "--rdzv_backend", "c10d", "--rdzv_id", "chaos", "--rdzv_endpoint",
                f"{hosts[0]}:29400"]

    def role(self, process):
        if "RANK" in process.environment:
            return "worker"
        return "daemon" if process.host == "n1" else "agent"


def train(build, folder, steps, checkpoint_every):
    """The example trainer with a small model."""
    return [str(build / "bin" / "train"), "--steps", str(steps), "--checkpoint-dir", str(folder / "checkpoints"),
            "--checkpoint-every", str(checkpoint_every), "--loss-log", str(folder / "losses"), "--global-batch", "16",
            "--hidden1", "64", "--hidden2", "32", "--progress", "none", "--seed", "7"]


def gloo(_, folder, steps, checkpoint_every):
    """A PyTorch script over gloo."""
    return [str(Path(__file__).resolve().parent / "gloo_trainer.py"), str(steps),
            str(folder / "checkpoints"), str(checkpoint_every), str(folder / "losses")]


LAUNCHERS = {"ddprun": Ddprun, "torchrun": Torchrun}
TRAINERS = {"train": train, "gloo": gloo}
