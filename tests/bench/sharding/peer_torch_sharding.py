"""12 x Linear(2048) with Adam by PyTorch on gloo, and its exchanges of 16 MiB. Beside sharding.cpp, and with its output.

usage: peer_torch_sharding.py step ddp|fsdp2 STEPS | unit gloo CALLS, with the variables of torchrun
"""

import statistics
import sys
import time

import torch
import torch.distributed as dist

LAYERS, WIDTH, SAMPLES = 12, 2048, 4


def own_pss_mib():
    with open("/proc/self/smaps_rollup") as rollup:
        return next(int(line.split()[1]) for line in rollup if line.startswith("Pss:")) / 1024


def of_all(value, op):
    tensor = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(tensor, op)
    return tensor.item()


def average(value):
    return of_all(value, dist.ReduceOp.SUM) / dist.get_world_size()


def make_model(kind):
    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))
    if kind == "ddp":
        return torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    from torch.distributed.fsdp import fully_shard
    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def time_steps(kind, steps):
    dist.barrier()
    before = own_pss_mib()
    model = make_model(kind)
    try:
        adam = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    except (RuntimeError, TypeError):  # PyTorch 1.13 has no such kernel for CPUs
        adam = torch.optim.Adam(model.parameters(), lr=1e-4)
    samples = torch.ones(SAMPLES, WIDTH) * (1 + dist.get_rank())
    times, peak = [], 0
    for step in range(steps + 2):
        dist.barrier()
        began = time.perf_counter()
        model(samples).square().mean().backward()
        adam.step()
        adam.zero_grad()
        taken = of_all((time.perf_counter() - began) * 1e3, dist.ReduceOp.MAX)
        if step >= 2:
            times.append(taken)
        dist.barrier()
        peak = max(peak, average(own_pss_mib() - before))
    if dist.get_rank() == 0:
        print(f"step {statistics.median(times):.2f} {peak:.1f}", flush=True)


def time_unit(calls):
    ranks, elements = dist.get_world_size(), 4 << 20
    whole, part = torch.ones(elements), torch.ones(elements // ranks)
    into_tensor = hasattr(dist, "reduce_scatter_tensor") and torch.__version__ >= "2"

    def gather():
        if into_tensor:
            dist.all_gather_into_tensor(whole, part)
        else:
            dist.all_gather(list(whole.chunk(ranks)), part)

    def reduce_scatter():
        if into_tensor:
            dist.reduce_scatter_tensor(part, whole)

    for name, call in {"gather": gather, "reduce_scatter": reduce_scatter}.items():
        times = []
        for _ in range(calls + 3):
            whole.fill_(1)
            part.fill_(1)
            dist.barrier()
            began = time.perf_counter()
            call()
            times.append(of_all((time.perf_counter() - began) * 1e6, dist.ReduceOp.MAX))
        if dist.get_rank() == 0 and (into_tensor or name == "gather"):
            print(f"{name} {statistics.median(times[3:]):.1f}", flush=True)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="env://")
    what, kind, count = sys.argv[1:]
    if what == "step":
        time_steps(kind, int(count))
    else:
        time_unit(int(count))
    dist.destroy_process_group()


main()
