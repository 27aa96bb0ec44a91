#!/usr/bin/env python3
"""Steps of Muon for tests/unit/optim/test_muon.c, as the header muon.h beside this script.

Run it with torch installed: tests/golden/muon.py. The formula is that of the public CIFAR-10 records, written with PyTorch's
operations in double precision: Nesterov's momentum, three iterations of Newton and Schulz on the update as a matrix, and
filters that keep their norm. Matrices are wider than high, and higher than wide.
"""
import os
import torch

STEPS, LR, MOMENTUM, ITERATIONS = 3, 0.125, 0.6, 3
SHAPES = {"wide": (10, 3, 3, 3), "high": (20, 3, 1, 1)}


def orthogonal(u):
    x = u / (u.norm() + 1e-7)
    turned = x.shape[0] > x.shape[1]
    x = x.T if turned else x
    for _ in range(ITERATIONS):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.T if turned else x


def floats(values):
    return "{" + ", ".join(f"{float(v).hex()}f" for v in values.reshape(-1)) + "}"


torch.manual_seed(11)
with open(os.path.join(os.path.dirname(__file__), "muon.h"), "w") as out:
    out.write("/* Written by muon.py: steps of Muon. */\n/* clang-format off */\n")
    out.write(f"enum {{ MUON_STEPS = {STEPS} }};\n#define MUON_LR {LR}f\n")
    out.write(f"#define MUON_HYPER {{.momentum = {MOMENTUM}, .muon_steps = {ITERATIONS}}}\n")
    for name, shape in SHAPES.items():
        start = torch.randn(shape).double()
        grads = torch.randn((STEPS,) + shape).double()
        w, buffer, results = start.clone(), torch.zeros(shape).double(), []
        for g in grads:
            buffer = MOMENTUM * buffer + g
            u = g + MOMENTUM * buffer
            w = w * shape[0] ** 0.5 / w.norm() - LR * orthogonal(u.reshape(shape[0], -1)).reshape(shape)
            results.append(w.clone())
        count = start.numel()
        out.write(f"enum {{ MUON_{name.upper()} = {count} }};\n")
        out.write(f"static const float muon_{name}_start[{count}] = {floats(start)};\n")
        for what, rows in (("grad", grads), ("param", results)):
            out.write(f"static const float muon_{name}_{what}[MUON_STEPS][{count}] = {{\n")
            for row in rows:
                out.write(f"    {floats(row)},\n")
            out.write("};\n")
    out.write("/* clang-format on */\n")
