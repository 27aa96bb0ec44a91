#!/usr/bin/env python3
"""Operations of Pillow for tests/unit/data/test_effects.c, as the header effects.h beside this script.

Run it with Pillow and numpy installed: tests/golden/effects.py. Each row has an operation, its strength, the size of the
picture, and the FNV-1a hash of the result. The picture is the one that paint() of tests/unit/data_files.h draws.
"""
import os

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

SIZES = [(3, 32, 32), (3, 21, 47), (1, 28, 28)]


def paint(channels, height, width):
    y, x, c = np.mgrid[0:height, 0:width, 0:channels]
    values = (x * 37 + y * 91 + c * 53 + x * y % 17 * 11).astype(np.uint8)
    return Image.fromarray(values if channels == 3 else values[:, :, 0])


def fnv(image):
    h = 0xcbf29ce484222325
    for byte in np.asarray(image).tobytes():
        h = (h ^ byte) * 0x100000001b3 % 2**64
    return h


def affine(image, *m):
    return image.transform(image.size, Image.Transform.AFFINE, m, Image.Resampling.NEAREST, fillcolor=0)


def hue(image, turn):
    """torchvision's adjust_hue."""
    if image.mode != "RGB":
        return image
    h, s, v = image.convert("HSV").split()
    shifted = (np.asarray(h).astype(np.int32) + int(np.float32(turn) * np.float32(255))).astype(np.uint8)
    return Image.merge("HSV", (Image.fromarray(shifted), s, v)).convert("RGB")


OPERATIONS = {
    "rotate": (lambda i, v: i.rotate(v, Image.Resampling.NEAREST), [13.7, -45, 90.5, 171]),
    "shear_x": (lambda i, v: affine(i, 1, v, 0, 0, 1, 0), [0.33, -0.99]),
    "shear_y": (lambda i, v: affine(i, 1, 0, 0, v, 1, 0), [0.66, -0.2]),
    "shift_x": (lambda i, v: affine(i, 1, 0, v, 0, 1, 0), [5, -17]),
    "brightness": (lambda i, v: ImageEnhance.Brightness(i).enhance(v), [0, 0.37, 1, 1.9]),
    "contrast": (lambda i, v: ImageEnhance.Contrast(i).enhance(v), [0, 0.37, 1, 1.9]),
    "saturation": (lambda i, v: ImageEnhance.Color(i).enhance(v), [0, 0.37, 1, 1.9]),
    "sharpness": (lambda i, v: ImageEnhance.Sharpness(i).enhance(v), [0, 0.37, 1, 1.9]),
    "hue": (hue, [0.1, -0.25, 0.5]),
    "posterize": (lambda i, v: ImageOps.posterize(i, int(v)), [8, 5, 2]),
    "solarize": (lambda i, v: ImageOps.solarize(i, v), [0, 127.5, 255]),
    "autocontrast": (lambda i, v: ImageOps.autocontrast(ImageEnhance.Brightness(i).enhance(v)), [0, 0.37, 1]),
    "equalize": (lambda i, v: ImageOps.equalize(ImageEnhance.Brightness(i).enhance(v)), [0, 0.37, 1]),
}

if __name__ == "__main__":
    with open(os.path.join(os.path.dirname(__file__), "effects.h"), "w") as out:
        out.write("/* Written by effects.py: operations of Pillow on the picture of paint(). */\n/* clang-format off */\n")
        out.write("static const struct {\n    const char *operation;\n    float strength;\n    int channels, height, width;\n"
                  "    uint64_t hash;\n} effects_of_pillow[] = {\n")
        for name, (operation, strengths) in OPERATIONS.items():
            for strength in strengths:
                for size in SIZES:
                    result = operation(paint(*size), float(np.float32(strength)))
                    numbers = ", ".join(map(str, size))
                    out.write(f'    {{"{name}", {float(strength)}f, {numbers}, {fnv(result):#x}u}},\n')
        out.write("};\n")
