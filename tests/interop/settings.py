"""What the options of `ddprund --store` change, as PyTorch's client sees it."""

import os
import threading
import time
from datetime import timedelta

import torch.distributed as dist
from operation import attempt
from servers import HOST, MODERN, Ours, connect


def limits():
    server = Ours(options=["--store-limit", "value-bytes=1K", "--store-limit", "store-bytes=64K"])
    store = connect(server)
    store.set("fits", "v" * 1024)
    assert store.get("fits") == b"v" * 1024
    connect(server).set("too long", "v" * 1025)  # there is no reply that could say so
    for number in range(100):
        filled = attempt(connect(server).compare_set, f"key {number}", "", "v" * 1000)
        if filled == "connection lost":
            break
    assert filled == "connection lost", "64 KiB took 100 values of 1,000 bytes"
    assert store.get("fits") == b"v" * 1024, "another client's refusal was felt here"
    assert store.num_keys() == number + 1
    refusals = server.refusals()
    server.stop()
    assert "a value of 1025 bytes; the limit is 1024" in refusals[0], refusals
    assert len(refusals) == 2 and "full" in refusals[1], refusals
    print(f"SUMMARY {number} values of 1,000 bytes fit in 64 KiB")


def refused_dialect():
    """A modern client is served whatever the setting is; one of 1.13 only if that is the older dialect."""
    for dialect in ("1.13", "2.1", "none"):
        server = Ours(options=["--older-dialect", dialect])
        # Of 2.1 and 1.13 this request has the same bytes; DELETE_KEY has not, and a client of the other would hang.
        answer = attempt(connect(server).add, "n", 1)
        assert answer == (1 if MODERN or dialect != "none" else "connection lost"), (dialect, answer)
        if MODERN:
            assert connect(server).delete_key("n")
        server.stop()


def an_ipv6_address():
    server = Ours(listen="[::1]:0")
    store = dist.TCPStore("::1", server.port, is_master=False, timeout=timedelta(seconds=5))
    assert store.add("n", 2) == 2
    server.stop()


def every_address():
    server = Ours(listen="0.0.0.0:0")
    for host in (HOST, "localhost"):
        store = dist.TCPStore(host, server.port, is_master=False, timeout=timedelta(seconds=5))
        store.add("n", 1)
    assert store.add("n", 0) == 2
    server.stop()


def a_client_that_comes_before_the_server():
    """PyTorch's client tries again until somebody listens there."""
    first = Ours()
    port = first.port
    first.stop()
    client = os.fork()  # not a thread: the constructor of 1.13 does not let go of the interpreter
    if client == 0:
        store = dist.TCPStore(HOST, port, is_master=False, timeout=timedelta(seconds=20))
        os._exit(0 if store.add("n", 1) == 1 else 1)
    time.sleep(0.5)
    server = Ours(listen=f"{HOST}:{port}")
    assert os.waitstatus_to_exitcode(os.waitpid(client, 0)[1]) == 0
    server.stop()


def the_server_goes():
    server = Ours()
    waiting, store = connect(server), connect(server)
    store.add("n", 1)

    answers = []
    thread = threading.Thread(target=lambda: answers.append(attempt(waiting.get, "never")))
    thread.start()
    server.stop()
    thread.join(10)
    assert answers == ["connection lost"], answers
    assert attempt(store.add, "n", 1) == "connection lost"


def runs():
    for function in (
        limits,
        refused_dialect,
        an_ipv6_address,
        every_address,
        a_client_that_comes_before_the_server,
        the_server_goes,
    ):
        yield "settings: " + function.__name__.replace("_", " "), function, 60
