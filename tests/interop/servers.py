"""The stores that the tests talk to: ours, and the ones that PyTorch itself starts."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from datetime import timedelta

import torch.distributed as dist

HOST = "127.0.0.1"
MODERN = hasattr(dist.TCPStore, "libuvBackend")  # 2.4 and later can choose between two servers


class Ours:
    """`ddprund --store` on a port of its own, its log in a temporary file."""

    name = "ddprund"

    def __init__(self, ddprund=None, listen=f"{HOST}:0", options=()):
        self.log = tempfile.TemporaryFile("w+")
        ddprund = ddprund or os.environ["DDPRUND"]
        self.process = subprocess.Popen(
            [ddprund, "--store", listen, *options], stdout=subprocess.PIPE, stderr=self.log, text=True
        )
        line = self.process.stdout.readline()
        said = re.fullmatch(r"store listening on (.+):(\d+)\n", line)
        if not said:
            self.process.kill()
            self.process.wait()
            raise RuntimeError(f"{ddprund} did not start: {self.log_text()}")
        self.host, self.port = said[1].strip("[]"), int(said[2])

    def log_text(self):
        self.log.seek(0)
        return self.log.read()

    def refusals(self):
        """What the server says about the connections that it closed."""
        return [line for line in self.log_text().splitlines() if "closed the connection" in line]

    def stop(self):
        """Ends it as an administrator would, and insists that it goes at once and without an error."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        try:
            code = self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError("ddprund --store ignores SIGTERM") from None
        finally:
            self.process.stdout.close()
        assert code == 0, f"ddprund --store ended with {code}: {self.log_text()}"
        assert time.monotonic() - began < 10, "ddprund --store took seconds to end"


class PyTorchs:
    """A server inside this process, as rank 0 would start it: poll based ("legacy"), or on libuv."""

    def __init__(self, libuv):
        self.name = "PyTorch's libuv server" if libuv else "PyTorch's own server"
        options = {"use_libuv": libuv} if MODERN else {}
        self.master = dist.TCPStore(HOST, 0, is_master=True, wait_for_workers=False, **options)
        self.host, self.port = HOST, self.master.port

    def refusals(self):
        return []

    def stop(self):
        self.master = None


def connect(server, seconds=20, **options):
    """A client like every rank but 0."""
    return dist.TCPStore(server.host, server.port, is_master=False, timeout=timedelta(seconds=seconds), **options)


def pytorchs_servers():
    """What to compare with: constructors by name."""
    servers = {"legacy": lambda: PyTorchs(libuv=False)}
    if MODERN:
        servers["libuv"] = lambda: PyTorchs(libuv=True)
    return servers


if __name__ == "__main__":
    sys.exit("this file has no program in it; run interop.py")
