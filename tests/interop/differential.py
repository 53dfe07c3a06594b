"""Every operation against our server and against PyTorch's own of the same release; they must agree."""

import gc
import time
from dataclasses import dataclass

import operations_newer  # noqa: F401 - importing registers
import operations_values  # noqa: F401
import operations_waits  # noqa: F401
import torch
import torch.distributed as dist
from operation import REGISTRY
from servers import MODERN, Ours, connect, pytorchs_servers


@dataclass
class Failure:
    """An operation that did not come to its end. Expected errors go through attempt(), so this is never right."""

    text: str


def result_of(function, make_server, client_options):
    """What the operation gives with an empty store of its own. A failure is a result, too."""
    server = make_server()
    clients = []

    def open_client(**options):
        clients.append(connect(server, **client_options, **options))
        return clients[-1]

    try:
        return function(open_client)
    except Exception as error:  # noqa: BLE001 - told as the result
        return Failure(f"{type(error).__name__}: {str(error).splitlines()[0]}")
    finally:
        clients.clear()
        gc.collect()  # clients first: one of 1.13 whose server goes spins
        server.stop()


def differs_on_purpose(function, kind):
    kinds = {kind} if MODERN else {kind, "1.13"}
    return any(name in function.differs for name in kinds)


def short(value):
    text = repr(value)
    return text if len(text) < 300 else f"{text[:200]}… ({len(text)} characters)"


def compare(client_options):
    """Prints one line for each operation that does not agree and returns (operations, comparisons, failures)."""
    failures = comparisons = 0
    usable = [f for f in REGISTRY if all(hasattr(dist.TCPStore, method) for method in f.needs)]
    if client_options.get("use_libuv") is False:
        usable = [f for f in usable if "queue_push" not in f.needs]  # the client refuses by itself
    for function in usable:
        began = time.monotonic()
        ours = result_of(function, Ours, client_options)
        if isinstance(ours, Failure):
            failures += 1
            print(f"FAILED {function.__name__}: {ours.text}")
        for kind, make_server in pytorchs_servers().items():
            if kind in function.absent:
                continue
            theirs = result_of(function, make_server, client_options)
            comparisons += 1
            if differs_on_purpose(function, kind) == (ours != theirs):
                continue
            failures += 1
            print(f"FAILED {function.__name__}:")
            print(f"  ours:              {short(ours)}")
            print(f"  PyTorch's {kind:8} {short(theirs)}")
            if ours == theirs:
                print("  they agree, although this list says that they differ on purpose")
        print(f"{time.monotonic() - began:6.2f} s  {function.__name__}: {short(ours)}")
    return len(usable), comparisons, failures


def report(client_options):
    torch.set_num_threads(1)
    operations_run, comparisons_made, failures = compare(client_options)
    print(
        f"SUMMARY {operations_run} operations, {comparisons_made} comparisons with PyTorch {torch.__version__}, "
        f"{failures} failures"
    )
    assert failures == 0


def comparisons():
    yield "every operation gives what PyTorch's own servers give", lambda: report({}), 120
    if MODERN:
        yield "the same with clients that do not use libuv", lambda: report({"use_libuv": False}), 120
