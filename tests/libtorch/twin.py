#!/usr/bin/env python3
"""libtorch_cnn in Python, under torch.distributed's gloo and PyTorch's DDP: the same data, weights and samples.

usage: ddprun … twin.py"""
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy, max_pool2d
from torch.utils.data.distributed import DistributedSampler

SAMPLES, BATCH, EPOCHS, SIDE = 512, 16, 4, 12
FONT = [
    [14, 17, 19, 21, 25, 17, 14], [4, 12, 4, 4, 4, 4, 14], [14, 17, 1, 2, 4, 8, 31], [31, 2, 4, 2, 1, 17, 14],
    [2, 6, 10, 18, 31, 2, 2], [31, 16, 30, 1, 1, 17, 14], [6, 8, 16, 30, 17, 17, 14], [31, 1, 2, 4, 8, 8, 8],
    [14, 17, 17, 14, 17, 17, 14], [14, 17, 17, 15, 1, 2, 12],
]  # fmt: skip


def digits():
    state = 1

    def random(below):
        nonlocal state
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (state >> 33) % below

    images, labels = [], []
    for _ in range(SAMPLES):
        digit, top, left = random(10), random(SIDE - 6), random(SIDE - 4)
        labels.append(digit)
        for y in range(SIDE):
            for x in range(SIDE):
                inside = 0 <= y - top < 7 and 0 <= x - left < 5
                ink = inside and (FONT[digit][y - top] >> (4 - (x - left))) % 2
                images.append(random(256) / 512 + ink)
    return torch.tensor(images).view(SAMPLES, 1, SIDE, SIDE), torch.tensor(labels)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3)
        self.fc1 = nn.Linear(256, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        x = max_pool2d(self.norm(self.conv1(x)).relu(), 2)
        return self.fc2(self.fc1(self.conv2(x).relu().flatten(1)).relu())


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    images, labels = digits()
    model = nn.parallel.DistributedDataParallel(Net())
    sampler = DistributedSampler(range(SAMPLES))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        losses = []
        began = time.monotonic()
        for batch in torch.tensor(list(sampler)).split(BATCH):
            optimizer.zero_grad()
            loss = cross_entropy(model(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        mean = torch.tensor(sum(losses) / len(losses), dtype=torch.double)
        dist.all_reduce(mean)
        if dist.get_rank() == 0:
            loss, seconds = mean.item() / dist.get_world_size(), time.monotonic() - began
            print(f"epoch {epoch}: loss {loss:.8f} {SAMPLES / seconds:.0f} images/s", flush=True)


main()
