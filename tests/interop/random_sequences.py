"""Random sequences of operations by seed, of a few clients on few keys: PyTorch's own servers must answer alike."""

import random

import torch
import torch.distributed as dist
from operation import attempt
from servers import MODERN, Ours, connect, pytorchs_servers

SEEDS = 10 if MODERN else 2  # the server of 1.13 takes 40 ms for some answers, which lie in its socket that long
STEPS = 200
KEYS = ["a", "b", "c", "counter", "", "p/a"]
TEXTS = ["", "0", "7", "-12", "value", "x" * 2000]


class Actor:
    """Performs random operations that cannot block: a value is read only where it is known to be there."""

    def __init__(self, store, prefixed, dice):
        self.store, self.prefixed, self.dice = store, prefixed, dice

    def key(self):
        return self.dice.choice(KEYS)

    def text(self):
        return self.dice.choice(TEXTS)

    def there(self):
        """Some keys that are there, found without a request that an old client lacks."""
        return [key for key in dict.fromkeys(self.key() for _ in range(3)) if self.is_there(key)]

    def is_there(self, key):
        # On a missing key with an expectation COMPARE_SET stores nothing and answers the expectation.
        return self.store.compare_set(key, "no value is like this", "nor this") != b"no value is like this"

    def set(self):
        return self.store.set(self.key(), self.text())

    def set_prefixed(self):
        return self.prefixed.set(self.key(), self.text())

    def compare_set(self):
        return self.store.compare_set(self.key(), self.text(), self.text())

    def add(self):
        return self.store.add("counter " + self.key(), self.dice.choice([0, 1, -1, 2**62]))

    def get(self):
        return [self.store.get(key) for key in self.there()]

    def wait(self):
        return self.store.wait(self.there())

    def delete_key(self):
        return self.store.delete_key(self.key())

    def num_keys(self):
        return self.store.num_keys()

    def check(self):
        return self.store.check([self.key() for _ in range(self.dice.randrange(4))])

    def append(self):
        return self.store.append(self.key(), self.text())

    def multi_set(self):
        pairs = [(self.key(), self.text()) for _ in range(self.dice.randrange(5))]
        return self.store.multi_set([key for key, _ in pairs], [value for _, value in pairs])

    def multi_get(self):
        return self.store.multi_get(self.there())

    def list_keys(self):
        return sorted(self.store.list_keys())

    def queue_push(self):
        return self.store.queue_push(self.key(), self.text())

    def queue_pop(self):
        return attempt(self.store.queue_pop, self.key(), False)

    def queue_len(self):
        return self.store.queue_len(self.key())

    def barrier(self):
        return self.store.barrier("barrier " + self.key(), 1)


QUEUES = {"queue_push", "queue_pop", "queue_len"}


def operations(with_queues):
    names = [
        name for name in vars(Actor) if not name.startswith("_") and name not in ("key", "text", "there", "is_there")
    ]
    names = [name for name in names if name == "set_prefixed" or hasattr(dist.TCPStore, name)]
    return [name for name in names if with_queues or name not in QUEUES]


def play(seed, make_server, with_queues):
    """[(operation, result)…]: what all clients together have seen, one request after the other."""
    dice = random.Random(seed)
    server = make_server()
    stores = [connect(server) for _ in range(3)]
    actors = [Actor(store, dist.PrefixStore("p", store), dice) for store in stores]
    names = operations(with_queues)
    seen = []
    for _ in range(STEPS):
        actor = dice.choice(actors)
        name = dice.choice(names)
        seen.append((name, getattr(actor, name)()))
        actor.store.num_keys()  # what has no reply is served before another client goes on
    del actors, stores, actor
    server.stop()
    return seen


def random_sequences():
    torch.set_num_threads(1)
    compared = 0
    for kind, make_server in pytorchs_servers().items():
        with_queues = kind == "libuv"
        for seed in range(SEEDS):
            ours, theirs = play(seed, Ours, with_queues), play(seed, make_server, with_queues)
            for step, (mine, other) in enumerate(zip(ours, theirs)):
                assert mine == other, f"seed {seed}, step {step}, PyTorch's {kind}: ours {mine}, theirs {other}"
            compared += len(ours)
    print(f"SUMMARY {compared} operations of {SEEDS} random sequences gave the same")


def runs():
    yield "random sequences of operations give what PyTorch's own servers give", random_sequences, 120
