#!/usr/bin/env python3
"""Steps of LAMB and of an exponential moving average for tests/unit/optim/test_lamb.c, as the header lamb.h beside this script.

Run it with torch installed: tests/golden/lamb.py. The formulas are those of timm's Lamb (always_adapt, no clipping) and ModelEma,
written with PyTorch's operations. The gradients are arbitrary, of sizes from 1e-6 to 10; one is always 0.
"""
import os
import torch

VALUES, STEPS, LR, BETAS, EPS, DECAY, EMA = 10, 12, 0.0078125, (0.9, 0.999), 1e-6, 0.01, 0.9

torch.manual_seed(7)
start = torch.randn(VALUES)
size = torch.logspace(-6, 1, VALUES)
size[3] = 0
grads = torch.randn(STEPS, VALUES) * size

param, average = start.clone(), start.clone()
mean, square = torch.zeros(VALUES), torch.zeros(VALUES)
rows = {"grad": [], "param": [], "exp_avg": [], "exp_avg_sq": [], "average": []}
for step in range(1, STEPS + 1):
    grad = grads[step - 1]
    mean = mean * BETAS[0] + grad * (1 - BETAS[0])
    square = square * BETAS[1] + grad * grad * (1 - BETAS[1])
    root = square.sqrt() / (1 - BETAS[1] ** step) ** 0.5 + EPS
    update = mean / (1 - BETAS[0] ** step) / root + DECAY * param
    lengths = param.norm(), update.norm()
    trust = lengths[0] / lengths[1] if lengths[0] > 0 and lengths[1] > 0 else 1.0
    param = param - LR * trust * update
    average = EMA * average + (1 - EMA) * param
    for name, values in zip(rows, (grad, param, mean, square, average)):
        rows[name].append(values.clone())


def floats(values):
    return "{" + ", ".join(f"{float(v).hex()}f" for v in values) + "}"


with open(os.path.join(os.path.dirname(__file__), "lamb.h"), "w") as out:
    out.write("/* Written by lamb.py: steps of LAMB, and the moving average of its weights. */\n/* clang-format off */\n")
    out.write(f"enum {{ LAMB_VALUES = {VALUES}, LAMB_STEPS = {STEPS} }};\n")
    out.write(f"#define LAMB_LR {LR}f\n#define LAMB_EMA {EMA}\n")
    out.write(f"#define LAMB_HYPER {{.beta1 = {BETAS[0]}, .beta2 = {BETAS[1]}, .eps = {EPS}, .weight_decay = {DECAY}}}\n")
    out.write(f"static const float lamb_start[LAMB_VALUES] = {floats(start)};\n")
    for name, steps in rows.items():
        out.write(f"static const float lamb_{name}[LAMB_STEPS][LAMB_VALUES] = {{\n")
        for values in steps:
            out.write(f"    {floats(values)},\n")
        out.write("};\n")
    out.write("/* clang-format on */\n")
