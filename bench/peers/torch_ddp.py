#!/usr/bin/env python3
"""PyTorch's side of bench/many: the time of a training step of VGG11 (CIFAR) on several processes over Gloo.

    torchrun --nproc-per-node 2 bench/peers/torch_ddp.py allreduce 256 6

gather: rank 0 collects every gradient, takes the mean and scatters it. allreduce: one sum for each parameter after
backward. ddp: DistributedDataParallel, which sums while backward runs. single: no communication. Each process computes
its share of the global batch with its share of two threads. The first two steps are not counted. Rank 0 prints the
median of the others, as `1234 ms/it`.
"""
import argparse
import os
import statistics
import time

import torch
import torch.distributed as dist

import models


def gather_and_scatter(gradient, rank, size):
    """Every rank's gradient becomes the mean that rank 0 has taken."""
    parts = [torch.empty_like(gradient) for _ in range(size)] if rank == 0 else None
    dist.gather(gradient, parts, dst=0)
    mean = [torch.stack(parts).mean(dim=0)] * size if rank == 0 else None
    dist.scatter(gradient, mean, src=0)


def sum_up(gradient, _, size):
    dist.all_reduce(gradient)
    gradient /= size


WAYS = {"single": None, "gather": gather_and_scatter, "allreduce": sum_up, "ddp": None}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("way", choices=WAYS)
    p.add_argument("batch", type=int, help="of all processes together")
    p.add_argument("steps", type=int, nargs="?", default=6)
    options = p.parse_args()

    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(max(1, 2 // int(os.environ["WORLD_SIZE"])))
    torch.manual_seed(0)  # the same weights everywhere
    model = models.make("vgg11_cifar", 10)
    images, labels = models.batch("vgg11_cifar", options.batch // size, 32, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    forward = torch.nn.parallel.DistributedDataParallel(model) if options.way == "ddp" else model
    combine = WAYS[options.way]

    times = []
    for number in range(2 + options.steps):
        dist.barrier()
        start = time.perf_counter()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(forward(images), labels).backward()
        if combine:
            for parameter in model.parameters():
                combine(parameter.grad, rank, size)
        optimizer.step()
        if number >= 2:
            times.append(time.perf_counter() - start)
    if rank == 0:
        print(f"PyTorch {torch.__version__} over Gloo, {options.way}, {size} processes, batch {options.batch}: "
              f"{statistics.median(times) * 1e3:.0f} ms/it", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
