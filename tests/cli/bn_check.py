"""BN's statistics, computed again with numpy.

    bn_check.py make FOLDER                     IDX files, and model.yaml
    bn_check.py compare FOLDER CHECKPOINT N B   the running statistics of the checkpoint's model are those over the first N
                                                images in batches of B
"""
import json
import os
import struct
import sys

import numpy
from safetensors import safe_open

folder = sys.argv[2]
side, eps = 10, 1e-5

if sys.argv[1] == "make":
    random = numpy.random.default_rng(5)
    os.makedirs(folder, exist_ok=True)
    for part, count in (("train", 150), ("t10k", 30)):
        labels = numpy.arange(count, dtype=numpy.uint8) % 10
        light = 20 * labels[:, None, None] + numpy.linspace(0, 40, count)[:, None, None]
        images = (light + random.integers(0, 30, (count, side, side))).astype(numpy.uint8)
        with open(os.path.join(folder, part + "-images-idx3-ubyte"), "wb") as f:
            f.write(struct.pack(">IIII", 0x803, count, side, side) + images.tobytes())
        with open(os.path.join(folder, part + "-labels-idx1-ubyte"), "wb") as f:
            f.write(struct.pack(">II", 0x801, count) + labels.tobytes())
    with open(os.path.join(folder, "model.yaml"), "w") as f:
        f.write(f"""input: 1x{side}x{side}
classes: 10
layers:
  - {{name: conv1, op: conv, out: 5, kernel: 3, pad: 1, bias: false}}
  - {{name: bn1, op: bn}}
  - {{name: relu1, op: relu}}
  - {{name: conv2, op: conv, out: 7, kernel: 3, stride: 2}}
  - {{name: bn2, op: bn, momentum: 0.3}}
  - {{name: relu2, op: relu}}
  - {{name: fc, op: dense, out: classes}}
""")
    sys.exit()


def conv(x, weight, stride, pad, bias=0.0):
    x = numpy.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    out = (x.shape[2] - 3) // stride + 1
    y = 0.0
    for i in range(3):
        for j in range(3):
            seen = x[:, :, i : i + stride * out : stride, j : j + stride * out : stride][:, :, :out, :out]
            y = y + numpy.einsum("nchw,kc->nkhw", seen, weight[:, :, i, j])
    return y + numpy.reshape(bias, (1, -1, 1, 1))


def column(v):
    return v[None, :, None, None]


def normalise(x, scale, shift, found):
    mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3))
    found.append((mean, x.var((0, 2, 3), ddof=1)))
    return numpy.maximum(0, column(scale) * (x - column(mean)) / numpy.sqrt(column(var) + eps) + column(shift))


with safe_open(os.path.join(sys.argv[3], "model.safetensors"), "numpy") as f:
    model = {name: f.get_tensor(name).astype(numpy.float64) for name in f.keys()}
    about = f.metadata()
count, batch = int(sys.argv[4]), int(sys.argv[5])
with open(os.path.join(folder, "train-images-idx3-ubyte"), "rb") as f:
    pixels = numpy.frombuffer(f.read()[16:], numpy.uint8).reshape(-1, 1, side, side)[:count]
mean, deviation = json.loads(about["lockstep.mean"])[0], json.loads(about["lockstep.deviation"])[0]
images = (pixels / 255.0 - mean) / deviation

first, second = [], []
for at in range(0, count, batch):
    x = conv(images[at : at + batch], model["conv1.weight"], 1, 1)
    x = normalise(x, model["bn1.weight"], model["bn1.bias"], first)
    x = conv(x, model["conv2.weight"], 2, 0, model["conv2.bias"])
    normalise(x, model["bn2.weight"], model["bn2.bias"], second)
for name, found in (("bn1", first), ("bn2", second)):
    for k, kind in enumerate(("running_mean", "running_var")):
        expected = numpy.mean([pair[k] for pair in found], axis=0)
        error = numpy.abs(model[f"{name}.{kind}"] - expected).max() / max(1e-3, numpy.abs(expected).max())
        print(name, kind, error)
        assert error < 2e-5, (name, kind, model[f"{name}.{kind}"], expected)
