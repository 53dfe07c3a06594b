"""torch.distributed with gloo; the loop of peer.hpp. usage: peer_torch.py CELL..., with BENCH_CACHE_STATE, a program"""

import contextlib
import os
import subprocess
import sys
import time

import torch
import torch.distributed as dist

LARGE = 256 << 10


def send_receive(values, inbox):
    rank, size = dist.get_rank(), dist.get_world_size()
    for request in [dist.isend(values, (rank + 1) % size), dist.irecv(inbox, (rank - 1) % size)]:
        request.wait()


def call(op, values, inbox):
    if op.startswith("all_reduce"):
        dist.all_reduce(values)
    elif op == "broadcast":
        dist.broadcast(values, 0)
    elif op == "barrier":
        dist.barrier()
    elif op == "sendrecv":
        send_receive(values, inbox)
    else:
        sys.exit(f"no collective is called {op}")


def largest(value):
    tensor = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(tensor, dist.ReduceOp.MAX)
    return tensor.item()


def resnet50():
    """Elements of its parameters; as resnet50.hpp."""
    counts, width_in = [3 * 64 * 49, 64, 64], 64
    for stage, blocks in enumerate([3, 4, 6, 3]):
        width = 64 << stage
        for block in range(blocks):
            shapes = [(width_in, width, 1), (width, width, 9), (width, 4 * width, 1)]
            shapes += [(width_in, 4 * width, 1)] if block == 0 else []
            for a, b, kernel in shapes:
                counts += [a * b * kernel, b, b]
            width_in = 4 * width
    return counts + [width_in * 1000, 1000]


class Gradients(torch.nn.Module):
    """Its backward does nothing but write gradients, so what DDP adds to it is the exchange."""

    def __init__(self):
        super().__init__()
        self.parameters_ = torch.nn.ParameterList(torch.nn.Parameter(torch.ones(count)) for count in resnet50())

    def forward(self):
        return sum(parameter.sum() for parameter in self.parameters_)


def time_gradients(calls):
    """Backward with exchange less the median of those without."""
    model = torch.nn.parallel.DistributedDataParallel(Gradients(), gradient_as_bucket_view=True)

    def backward(sync):
        model.zero_grad(set_to_none=False)
        with contextlib.nullcontext() if sync else model.no_sync():
            loss = model()
            dist.barrier()
            began = time.perf_counter()
            loss.backward()
            return (time.perf_counter() - began) * 1e6

    for sync in (True, True, True, False):
        backward(sync)
    alone = sorted(backward(False) for _ in range(calls))[calls // 2]
    return [backward(True) - alone for _ in range(calls)]


def look_at_caches():
    """Of rank 0; the others leave it the CPUs meanwhile."""
    ns = 0.0
    dist.barrier()
    if dist.get_rank() == 0:
        ns = float(subprocess.run([os.environ["BENCH_CACHE_STATE"]], capture_output=True, check=True).stdout)
    else:
        time.sleep(0.02)
    dist.barrier()
    return ns


def report(cell, times, before):
    """What look_at_caches() says now; `before`: what it said last."""
    times.sort()
    median = largest(times[len(times) // 2])
    late = largest(times[min(len(times) - 1, len(times) * 999 // 1000)])
    after = look_at_caches()
    if dist.get_rank() == 0:
        print(cell, f"{median:.4f}", f"{late:.4f}", f"{before:.1f}", f"{after:.1f}", flush=True)
    return after


def run_cell(cell, before):
    op, size, calls = cell.split(":")
    size, calls = int(size), int(calls)
    if op == "gradients":
        return report(cell, time_gradients(calls), before)
    dtype = torch.float16 if op.endswith(".f16") else torch.float32
    values = torch.ones(max(size // (2 if dtype == torch.float16 else 4), 1), dtype=dtype)
    inbox = torch.empty_like(values)
    for _ in range(5):
        call(op, values, inbox)
    values.fill_(1)
    dist.barrier()
    times = []
    for _ in range(calls):
        if size >= LARGE:
            values.fill_(dist.get_rank() + 1)
            dist.barrier()
        began = time.perf_counter()
        call(op, values, inbox)
        times.append((time.perf_counter() - began) * 1e6)
    return report(cell, times, before)


dist.init_process_group("gloo", init_method="env://")
caches_ns = look_at_caches()
for cell in sys.argv[1:]:
    caches_ns = run_cell(cell, caches_ns)
dist.destroy_process_group()
