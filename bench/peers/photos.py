#!/usr/bin/env python3
"""Makes the images of bench/input: JPEGs of 500x400 pixels, quality 90, in folders of ten classes.

Each is a mosaic of sixteen photographs of a folder such as Tiny ImageNet, so that it has the detail, and the bytes, of a
photograph of its size. The same source gives the same files.
"""
import argparse
import pathlib
import random
import sys

from PIL import Image

WIDTH, HEIGHT, TILES, CLASSES, QUALITY = 500, 400, 4, 10, 90


def find(source):
    found = sorted(p for p in pathlib.Path(source).rglob("*") if p.suffix.lower() in (".jpg", ".jpeg", ".png"))
    if len(found) < TILES * TILES:
        sys.exit(f"photos.py: {source}: only {len(found)} images; {TILES * TILES} or more are needed")
    return found


def make(sources, number):
    choose = random.Random(number)
    photo = Image.new("RGB", (WIDTH, HEIGHT))
    size = (WIDTH // TILES, HEIGHT // TILES)
    for i in range(TILES * TILES):
        tile = Image.open(sources[choose.randrange(len(sources))]).convert("RGB").resize(size, Image.BICUBIC)
        photo.paste(tile, (i % TILES * size[0], i // TILES * size[1]))
    return photo


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("source", help="a folder of photographs")
    p.add_argument("folder", help="where to write them: FOLDER/CLASS/NUMBER.jpg")
    p.add_argument("count", type=int)
    p.add_argument("--raw", type=int, default=0, metavar="SIZE",
                   help="also write FOLDER-raw: the images at SIZE x SIZE, not compressed (PPM)")
    options = p.parse_args()
    sources = find(options.source)
    for number in range(options.count):
        photo = make(sources, number)
        name = pathlib.Path(f"class{number % CLASSES}") / f"{number:05d}"
        jpeg = pathlib.Path(options.folder) / name.with_suffix(".jpg")
        jpeg.parent.mkdir(parents=True, exist_ok=True)
        photo.save(jpeg, quality=QUALITY)
        if options.raw:
            raw = pathlib.Path(options.folder + "-raw") / name.with_suffix(".ppm")
            raw.parent.mkdir(parents=True, exist_ok=True)
            photo.resize((options.raw, options.raw), Image.BILINEAR).save(raw)


if __name__ == "__main__":
    main()
