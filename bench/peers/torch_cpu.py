#!/usr/bin/env python3
"""PyTorch's side of bench/compare: the time of a training step on the CPU.

A step is forward, cross-entropy, backward and SGD with momentum and weight decay. The first two steps are not counted
(torch.compile compiles in them). Prints the median of the others, as `123.4 ms/it`.
"""
import argparse
import statistics
import time

import torch

import models


def sides(text):
    height, _, width = text.partition("x")
    return int(height), int(width or height)


def parse_options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", help="vgg11_cifar, lenet, mlp, convnet, or a name in torchvision.models")
    p.add_argument("batch", type=int)
    p.add_argument("size", type=sides, help="height and width of the images, or HxW")
    p.add_argument("classes", type=int)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--iters", type=int, default=6, help="steps that are counted (%(default)s)")
    p.add_argument("--cl", action="store_true", help="the memory format channels_last")
    p.add_argument("--compile", action="store_true", help="torch.compile")
    p.add_argument("--bf16", action="store_true", help="bf16 by autocast")
    p.add_argument("--cpu-time", action="store_true", help="processor time of the process instead of time")
    return p.parse_args()


def main():
    options = parse_options()
    torch.set_num_threads(options.threads)
    model = models.make(options.model, options.classes)
    images, labels = models.batch(options.model, options.batch, options.size, options.classes)
    if options.cl:
        model = model.to(memory_format=torch.channels_last)
        images = images.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    forward = torch.compile(model) if options.compile else model

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.bf16):
            loss = torch.nn.functional.cross_entropy(forward(images), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    clock = time.process_time if options.cpu_time else time.perf_counter
    times = []
    for number in range(2 + options.iters):
        start = clock()
        step()
        if number >= 2:
            times.append(clock() - start)
    median = statistics.median(times)
    print(f"PyTorch {torch.__version__}, {options.model}, batch {options.batch}: {median * 1e3:.1f} ms/it, "
          f"{options.batch / median:.1f} images/s", flush=True)


if __name__ == "__main__":
    main()
