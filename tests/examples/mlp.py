#!/usr/bin/env python3
"""The example mlp in Python, under torch.distributed's gloo and PyTorch's DDP: the same digits, weights and samples.

usage: ddprun … mlp.py DIGITS.csv"""
import math
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data.distributed import DistributedSampler

BATCH, EPOCHS = 16, 6


def main():
    dist.init_process_group("gloo")
    with open(sys.argv[1]) as file:
        lines = torch.tensor([[int(number) for number in line.split(",")] for line in file])
    pixels, digits = lines[:, :64] / 16, lines[:, 64]
    net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    if dist.get_rank() == 0:
        with torch.no_grad():
            sines = torch.tensor([math.sin(k * k) for k in range(64 * 32 + 32 * 10)])
            net[0].weight.copy_(sines[: 64 * 32].view(32, 64) / 8)
            net[2].weight.copy_(sines[64 * 32 :].view(10, 32) / 4)
            net[0].bias.zero_()
            net[2].bias.zero_()
    model = nn.parallel.DistributedDataParallel(net)
    sampler = DistributedSampler(range(len(digits)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for epoch in range(1, EPOCHS + 1):
        sampler.set_epoch(epoch)
        losses = []
        for batch in torch.tensor(list(sampler)).split(BATCH):
            optimizer.zero_grad()
            loss = cross_entropy(model(pixels[batch]), digits[batch])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        mean = torch.tensor(sum(losses) / len(losses), dtype=torch.double)
        dist.all_reduce(mean)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {mean.item() / dist.get_world_size():.8f}", flush=True)


main()
