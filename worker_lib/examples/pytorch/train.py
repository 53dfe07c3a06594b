#!/usr/bin/env python3
"""A PyTorch script, as it is written for torchrun: only the name of the launcher changes.

    ddprun --nproc_per_node 2 train.py
"""
import torch
import torch.distributed as dist
from torch.utils.data.distributed import DistributedSampler


def main():
    dist.init_process_group("gloo")
    x = torch.arange(64).view(64, 1) / 64
    y = 3 * x + 1
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.25)
    sampler = DistributedSampler(range(64))
    for epoch in range(50):
        sampler.set_epoch(epoch)
        for sample in sampler:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x[sample]), y[sample]).backward()
            optimizer.step()
    slope, offset = model.module.weight.item(), model.module.bias.item()
    print(f"rank {dist.get_rank()} of {dist.get_world_size()}: y = {slope:.3f} x + {offset:.3f}")


if __name__ == "__main__":
    main()
