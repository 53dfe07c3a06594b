#!/usr/bin/env python3
"""Measures a step of PyTorch's DistributedDataParallel at world size 1, for scripts/gpu-check: two models, each with and without DDP.
Prints a line for each: "figure torch_step_MODEL milliseconds ms".

usage: torch_ddp.py
"""
import os
import socket
import statistics

import torch
import torch.distributed
from torch import nn

STEPS, WARM_UP = 50, 15  # a DDP step is stable after 11
BATCH = 256


class ManySmall(nn.Module):
    """1,000 parameters of 1,024 elements, of which each is one addition."""

    def __init__(self):
        super().__init__()
        self.rows = nn.ParameterList(nn.Parameter(torch.zeros(1024)) for _ in range(1000))

    def forward(self, values):
        for row in self.rows:
            values = values + row
        return values


MODELS = {"30_x_Linear(1024)": lambda: nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(30))), "1000_small_tensors": ManySmall}


def step_milliseconds(model):
    """Returns the median time of a forward and backward pass on the device."""
    values = torch.randn(BATCH, 1024, device="cuda")
    times = []
    for step in range(WARM_UP + STEPS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        model(values).square().mean().backward()
        end.record()
        end.synchronize()
        model.zero_grad(set_to_none=False)
        if step >= WARM_UP:
            times.append(begin.elapsed_time(end))
    return statistics.median(times)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def main():
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
    torch.manual_seed(1)
    torch.distributed.init_process_group("nccl", rank=0, world_size=1)
    print(f"fact torch {torch.__version__}")
    for name, make in MODELS.items():
        model = make().cuda()
        print(f"figure torch_step_{name}_without_DDP {step_milliseconds(model):.4f} ms")
        wrapped = nn.parallel.DistributedDataParallel(model, device_ids=[0], gradient_as_bucket_view=True)
        print(f"figure torch_step_{name} {step_milliseconds(wrapped):.4f} ms")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
