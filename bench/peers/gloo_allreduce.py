#!/usr/bin/env python3
"""Gloo's side of `bench/many sums`: the time of an allreduce of 1 KB to 256 MB of f32, as nccl-tests measures it.

Sums in place, one after the other, for about 0.1 s a size. Rank 0 prints lines of `BYTES MICROSECONDS`.
"""
import time

import torch
import torch.distributed as dist


def measure(data, times):
    """Seconds of one of `times` sums."""
    dist.barrier()
    start = time.perf_counter()
    for _ in range(times):
        dist.all_reduce(data)
    return (time.perf_counter() - start) / times


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    size = 1 << 10
    while size <= 256 << 20:
        data = torch.zeros(size // 4)
        times = torch.tensor([min(10000, max(5, int(0.1 / measure(data, 3))))])
        dist.broadcast(times, 0)
        took = measure(data, int(times))
        if dist.get_rank() == 0:
            print(size, f"{took * 1e6:.2f}", flush=True)
        size *= 4
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
