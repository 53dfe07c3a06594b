"""Process groups and DistributedDataParallel over our store: what a training script does, on forked ranks."""

import os
import time
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist
from servers import MODERN, Ours, connect

LIMIT = timedelta(seconds=30)
NEW_GROUPS = 3


def collectives(rank, world):
    ranks = torch.arange(world, dtype=torch.float64)
    total = torch.full((3,), float(rank), dtype=torch.float64)
    dist.all_reduce(total)
    assert total.tolist() == [ranks.sum().item()] * 3, total
    from_last = torch.tensor([rank])
    dist.broadcast(from_last, src=world - 1)
    assert from_last.item() == world - 1
    objects = [None] * world
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * rank})
    assert objects == [{"rank": r, "text": "x" * r} for r in range(world)], objects
    dist.barrier()


def groups(rank, world):
    """Each new group meets at the store again, under a prefix of its own."""
    for first in range(NEW_GROUPS):
        members = list(range(first % world, world, 2))
        group = dist.new_group(members)
        if rank in members:
            total = torch.ones(1)
            dist.all_reduce(total, group=group)
            assert total.item() == len(members), total
    dist.monitored_barrier(timeout=LIMIT)


def training(rank, world):
    """Ranks start from different parameters and see different data; DDP must leave them with the same."""
    torch.manual_seed(rank)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(17, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = [p.detach().clone() for p in model.parameters()]
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(4, 17)).square().mean().backward()
        optimizer.step()
    mine = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert not torch.equal(mine, torch.cat([p.flatten() for p in before])), "nothing was learned"
    everybodys = [torch.empty_like(mine) for _ in range(world)]
    dist.all_gather(everybodys, mine)
    assert all(torch.equal(mine, other) for other in everybodys), "ranks have different parameters"


def work(rank, world):
    collectives(rank, world)
    groups(rank, world)
    training(rank, world)
    dist.destroy_process_group()


def rank_of_an_agent(rank, world, server):
    """As torchrun and ddprun start it: env://, and the store is the agent's, so that rank 0 is a client as well."""
    os.environ.update(
        MASTER_ADDR=server.host, MASTER_PORT=str(server.port), RANK=str(rank), WORLD_SIZE=str(world),
        TORCHELASTIC_USE_AGENT_STORE="True", TORCHELASTIC_RESTART_COUNT="0", TORCHELASTIC_RUN_ID="interop",
    )  # fmt: skip
    dist.init_process_group("gloo", init_method="env://", timeout=LIMIT)
    work(rank, world)


def rank_with_a_store(rank, world, server):
    """As programs that open the store themselves: every rank a client of a known world size."""
    store = connect(server, world_size=world)
    dist.init_process_group("gloo", store=dist.PrefixStore("mine", store), rank=rank, world_size=world, timeout=LIMIT)
    work(rank, world)


def fork_rank(function, *arguments):
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        function(*arguments)
        code = 0
    except BaseException:  # noqa: BLE001 - told by the exit code
        traceback.print_exc()
    finally:
        os._exit(code)


def job(function, world):
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # this machine's own name need not have an address
    server = Ours()
    began = time.monotonic()
    pids = [fork_rank(function, rank, world, server) for rank in range(world)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    assert codes == [0] * world, f"exit codes by rank: {codes}; {server.log_text()}"
    assert not server.refusals(), server.refusals()
    keys = connect(server).num_keys()
    server.stop()
    print(f"SUMMARY {world} ranks, {keys} keys, {time.monotonic() - began:.1f} s")


def poll_clients(function):
    """The same with clients that were told not to use libuv, as some builds must."""

    def run(rank, world, server):
        os.environ["USE_LIBUV"] = "0"
        function(rank, world, server)

    return run


def jobs():
    for world in (2, 8):
        yield f"{world} ranks of an agent: init_process_group, groups, DDP", lambda w=world: job(
            rank_of_an_agent, w
        ), 90
        yield f"{world} ranks with a store of their own: the same", lambda w=world: job(rank_with_a_store, w), 90
    if MODERN:
        yield "2 ranks of an agent with USE_LIBUV=0", lambda: job(poll_clients(rank_of_an_agent), 2), 60
