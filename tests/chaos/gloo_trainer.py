"""Trains a small model over gloo and resumes from its checkpoint, under any launcher that sets PyTorch's environment.

It sums the gradients itself: DistributedDataParallel rebuilds its buckets after the first step, so that a job that resumes adds
in another order than one that was not disturbed.

usage: gloo_trainer.py STEPS CHECKPOINT_DIR CHECKPOINT_EVERY LOSS_LOG
"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

steps, folder, every, loss_log = int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(7)
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.Tanh(), torch.nn.Linear(512, 64))
first, checkpoint = torch.zeros(1, dtype=torch.int64), folder / "newest.pt"
if rank == 0:
    folder.mkdir(exist_ok=True)
    log = os.open(loss_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    if checkpoint.exists():
        state = torch.load(checkpoint)
        first[0] = state["step"]
        model.load_state_dict(state["model"])
dist.broadcast(first, 0)
for parameter in model.parameters():
    dist.broadcast(parameter.data, 0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)  # without momentum it has no state

for step in range(int(first) + 1, steps + 1):
    samples = torch.Generator().manual_seed(step * dist.get_world_size() + rank)
    inputs = torch.randn(32, 256, generator=samples)
    loss = (model(inputs) - inputs[:, :64].sin()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    average = torch.cat([loss.detach().reshape(1), *(gradient.flatten() for gradient in gradients)])
    dist.all_reduce(average)
    average /= dist.get_world_size()
    for gradient, part in zip(gradients, average[1:].split([gradient.numel() for gradient in gradients])):
        gradient.copy_(part.view_as(gradient))
    optimizer.step()
    if rank == 0:
        os.write(log, f"{step} {average[0].item():.17g}\n".encode())
        if step % every == 0:
            part = checkpoint.with_suffix(".part")
            torch.save({"step": step, "model": model.state_dict()}, part)
            os.replace(part, checkpoint)
