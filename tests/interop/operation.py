"""What operations on a store are made of, and the list of all that are registered.

An operation starts with an empty store and returns what its caller could see. `open()` makes one more client of it.
Nothing here knows which server answers: differential.py runs each against ours and against PyTorch's own, and compares.
"""

import threading
import time
from datetime import timedelta

SHORT = timedelta(milliseconds=200)
LONG = timedelta(seconds=15)
REGISTRY = []


def operation(needs=(), differs=None, absent=()):
    """Registers one.

    needs    methods of TCPStore that this PyTorch may lack
    differs  from which of PyTorch's servers ours differs on purpose, and why (docs/protocol.md): results must differ
    absent   servers that end the connection at these requests, so that there is nothing to compare
    """

    def register(function):
        function.needs = [needs] if isinstance(needs, str) else list(needs)
        function.differs = differs or {}
        function.absent = absent
        REGISTRY.append(function)
        return function

    return register


def attempt(function, *arguments):
    """What a call gives, or how it fails: every failure of a store is a RuntimeError, and the words say which."""
    try:
        return function(*arguments)
    except RuntimeError as error:
        text = str(error).lower()
        for word in ("timeout", "timed out"):
            if word in text:
                return "timeout"
        return "connection lost" if any(w in text for w in ("reset", "closed", "broken", "failed to recv")) else text


def together(*functions):
    """Runs them at the same time, each in a thread; the bindings let go of the interpreter while they wait."""
    results = [None] * len(functions)

    def run(index, function):
        results[index] = attempt(function)

    threads = [threading.Thread(target=run, args=pair, daemon=True) for pair in enumerate(functions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive(), "a client still waits after 30 s"
    return results


def later(function, *arguments):
    """The same a moment later, when the wait that it ends has begun: from outside nobody can see that."""

    def run():
        time.sleep(0.25)
        return function(*arguments)

    return run
