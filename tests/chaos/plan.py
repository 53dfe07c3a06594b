"""The plan of faults: what is hit, when and for how long. A pure function of the seed."""

import random
from collections import Counter
from dataclasses import dataclass

KINDS = ("worker killed", "agent killed", "guard killed", "host killed", "worker stopped", "agent stopped", "guard stopped",
         "daemon stopped", "partition", "daemon killed", "daemon's host killed")
LASTING = {"host killed", "daemon's host killed", "worker stopped", "agent stopped", "guard stopped", "daemon stopped",
           "partition"}
LOSES_A_NODE = {"agent killed", "guard killed", "host killed", "agent stopped", "partition"}
GO_ON = {"worker stopped", "guard stopped", "daemon stopped"}  # and the same workers with it: shorter than hold
ENDS_THE_DAEMON = {"daemon killed", "daemon's host killed"}  # known: the job ends, and is started again (docs/design/002)
MAX_LOSSES = 2  # of one host without a rest: the third one would end the job with 93, by design (docs/design/002, the breaker)


@dataclass(frozen=True)
class Fault:
    kind: str
    hosts: tuple  # the host that is hit; of a partition, the hosts that are separated from all others
    local_rank: int
    seconds: float  # how long the fault lasts; 0: a kill
    rest: bool  # before it the job has to run for a while, so that earlier losses no longer count
    after_steps: int  # new steps between the recovery from the fault before and this one
    delay: float  # seconds after the end of that step, so that every moment of a step is hit

    @property
    def ends_workers(self):
        """Whether workers end in any case, however long the fault lasts."""
        return self.seconds == 0 or self.kind.endswith("host killed")

    def __str__(self):
        where = ",".join(self.hosts) + (f" local rank {self.local_rank}" if self.kind.startswith("worker") else "")
        return f"{self.kind}, {where}" + (f", for {self.seconds:.1f} s" if self.seconds else "")


def make_plan(seed, count, hosts, workers, kinds=KINDS, agents=None, max_seconds=10):
    """Returns `count` faults, each kind equally often.

    hosts    the daemon is on the first one
    agents   the hosts whose agents may be hit; all by default
    """
    chance = random.Random(seed)
    plan, deck, losses = [], [], Counter()
    for _ in range(count):
        deck = deck or chance.sample(kinds, len(kinds))
        kind = deck.pop()
        if kind.startswith("daemon"):
            candidates = hosts[:1]
        elif kind == "host killed":
            candidates = hosts[1:]
        elif kind.startswith("agent"):
            candidates = agents or hosts
        else:
            candidates = hosts
        rest = False
        if kind in LOSES_A_NODE:
            fresh = [host for host in candidates if losses[host] < MAX_LOSSES]
            rest = not fresh
            candidates = fresh or candidates
        two = kind == "partition" and len(candidates) > 1 and chance.random() < 0.3
        hit = tuple(chance.sample(candidates, 2 if two else 1))
        if rest or kind in ENDS_THE_DAEMON:
            losses.clear()
        elif kind in LOSES_A_NODE:
            losses.update(hit)
        plan.append(Fault(kind, hit, chance.randrange(workers), chance.uniform(1, max_seconds) if kind in LASTING else 0.0,
                          rest, chance.randint(2, 15), chance.uniform(0, 0.05)))
    return plan
