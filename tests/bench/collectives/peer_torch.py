"""torch.distributed with gloo; the loop of peer.hpp. usage: peer_torch.py CELL..."""

import sys
import time

import torch
import torch.distributed as dist

LARGE = 256 << 10


def call(op, values):
    if op == "all_reduce":
        dist.all_reduce(values)
    elif op == "broadcast":
        dist.broadcast(values, 0)
    elif op == "barrier":
        dist.barrier()
    else:
        sys.exit(f"no collective is called {op}")


def largest(value):
    tensor = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(tensor, dist.ReduceOp.MAX)
    return tensor.item()


def run_cell(op, size, calls):
    values = torch.ones(max(size // 4, 1))
    for _ in range(5):
        call(op, values)
    values.fill_(1)
    dist.barrier()
    times = []
    for _ in range(calls):
        if size >= LARGE:
            values.fill_(dist.get_rank() + 1)
            dist.barrier()
        began = time.perf_counter()
        call(op, values)
        times.append((time.perf_counter() - began) * 1e6)
    times.sort()
    median = largest(times[len(times) // 2])
    late = largest(times[min(len(times) - 1, len(times) * 999 // 1000)])
    if dist.get_rank() == 0:
        print(op, size, f"{median:.4f}", f"{late:.4f}", flush=True)


dist.init_process_group("gloo", init_method="env://")
for cell in sys.argv[1:]:
    op, size, calls = cell.split(":")
    run_cell(op, int(size), int(calls))
dist.destroy_process_group()
