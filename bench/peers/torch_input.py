#!/usr/bin/env python3
"""torchvision's side of bench/input: images per second that one thread reads, decodes, crops, mirrors and normalises.

Pipelines:
  pil   Pillow decodes and scales; the usual transforms
  io    torchvision.io.decode_jpeg on tensors; the transforms of v2
  raw   tensors in memory, decoded before (uint8), with the transforms of v2
Images are read in a fixed random order, again and again, until the time is over. Prints `1234.5 images/s 1300.2 of one core`;
the second number counts CPU time, so that other programs on the machine matter less.
"""
import argparse
import pathlib
import random
import time

import torch
from PIL import Image
from torchvision import io, transforms
from torchvision.transforms import v2

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def make_pil(size):
    transform = transforms.Compose([
        transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
        transforms.Normalize(MEAN, DEVIATION)])

    def load(path):
        with open(path, "rb") as file:
            return transform(Image.open(file).convert("RGB"))
    return load


def make_tensors(size):
    return v2.Compose([
        v2.RandomResizedCrop(size, antialias=True), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(MEAN, DEVIATION)])


def make_io(size):
    transform = make_tensors(size)
    return lambda path: transform(io.decode_jpeg(io.read_file(str(path)), mode=io.ImageReadMode.RGB))


def measure(load, items, seconds):
    for item in items[:20]:
        load(item)
    done, start, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - start < seconds:
        load(items[done % len(items)])
        done += 1
    return done / (time.perf_counter() - start), done / (time.process_time() - cpu)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("pipeline", choices=["pil", "io", "raw"])
    p.add_argument("folder")
    p.add_argument("--size", type=int, default=224)
    p.add_argument("--seconds", type=float, default=3)
    options = p.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    items = sorted(p for p in pathlib.Path(options.folder).rglob("*") if p.is_file())
    random.Random(1).shuffle(items)
    load = {"pil": make_pil, "io": make_io, "raw": make_tensors}[options.pipeline](options.size)
    if options.pipeline == "raw":
        items = [v2.functional.pil_to_tensor(Image.open(path).convert("RGB")) for path in items]
    speed, of_core = measure(load, items, options.seconds)
    print(f"{speed:.1f} images/s {of_core:.1f} of one core")


if __name__ == "__main__":
    main()
