#!/usr/bin/env python3
"""Runs PyTorch's own test/distributed/test_store.py, unchanged, with our server in place of the one in the process.

usage: foreign_server.py --ddprund PATH TEST_FILE [unittest's options and tests]

The file comes with PyTorch's sources, of the same release as the installed PyTorch; it is not in the wheel. Every
TCPStore(is_master=True) that it makes becomes a client of a fresh `ddprund --store`. Not applicable, and expected to
fail: test_take_over_listen_socket (it hands a listening descriptor to the constructor) and test_repr (it prints the
server inside the process).
"""

import argparse
import atexit
import os
import runpy
import socket
import struct
import sys
import time
from datetime import timedelta

import torch.distributed as dist
import torch.distributed.rendezvous
from servers import MODERN, Ours

Base = dist.TCPStore
served = {}  # port: the servers of this process, which last to its end
alive = []  # every instance: else the bindings hand out one of the base class where a test expects this one


def server_on(host, port, multi_tenant):
    if port in served and multi_tenant:
        return served[port]
    try:
        server = Ours(listen=f"{host}:{port}")
    except RuntimeError as error:
        raise getattr(dist, "DistNetworkError", RuntimeError)(
            f"The server socket has failed to listen on any local network address. port: {port}: {error}"
        ) from None
    atexit.register(server.stop)
    served[server.port] = server
    return server


def clients_joined(server):
    """The counter `init/`, which the API cannot name: ADD of 0."""
    magic, add = (b"\x00\xce\xf7\x85\x3c", 4) if MODERN else (b"", 3)
    with socket.create_connection((server.host, server.port)) as connection:
        connection.sendall(magic + struct.pack("<BQ5sq", add, 5, b"init/", 0))
        return struct.unpack("<q", connection.recv(8, socket.MSG_WAITALL))[0]


class TCPStore(Base):
    def __init__(
        self,
        host_name,
        port,
        world_size=None,
        is_master=False,
        timeout=timedelta(seconds=300),
        wait_for_workers=True,
        multi_tenant=False,
        **options,
    ):
        alive.append(self)
        server = server_on(host_name, port, multi_tenant) if is_master else None
        super().__init__(
            host_name, server.port if server else port, world_size, False, timeout, wait_for_workers, **options
        )
        deadline = time.monotonic() + timeout.total_seconds()
        while server and wait_for_workers and world_size and (joined := clients_joined(server)) < world_size:
            if time.monotonic() > deadline:
                error = getattr(dist, "DistStoreError", RuntimeError)
                seconds = int(timeout.total_seconds())
                raise error(
                    f"Timed out after {seconds} seconds waiting for clients. {joined}/{world_size} clients joined."
                )
            time.sleep(0.01)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ddprund", required=True)
    parser.add_argument("test_file")
    parser.add_argument("rest", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    os.environ["DDPRUND"] = os.path.abspath(arguments.ddprund)
    dist.TCPStore = torch.distributed.rendezvous.TCPStore = TCPStore
    sys.argv = [arguments.test_file, *arguments.rest]
    runpy.run_path(arguments.test_file, run_name="__main__")


if __name__ == "__main__":
    main()
