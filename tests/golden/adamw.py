#!/usr/bin/env python3
"""Steps of PyTorch's AdamW for tests/unit/optim/test_updates.c, as the header adamw.h beside this script.

Run it with torch installed: tests/golden/adamw.py. The gradients are arbitrary, of sizes from 1e-6 to 10; one is always 0.
"""
import os
import torch

VALUES, STEPS, LR, BETAS, EPS, DECAY = 10, 12, 0.0078125, (0.9, 0.999), 1e-8, 0.01

torch.manual_seed(7)
start = torch.randn(VALUES)
size = torch.logspace(-6, 1, VALUES)
size[3] = 0
grads = torch.randn(STEPS, VALUES) * size

param = start.clone().requires_grad_()
adamw = torch.optim.AdamW([param], lr=LR, betas=BETAS, eps=EPS, weight_decay=DECAY, foreach=False)
rows = {"grad": [], "param": [], "exp_avg": [], "exp_avg_sq": []}
for step in range(STEPS):
    param.grad = grads[step].clone()
    adamw.step()
    state = adamw.state[param]
    rows["grad"].append(grads[step])
    rows["param"].append(param.detach().clone())
    rows["exp_avg"].append(state["exp_avg"].clone())
    rows["exp_avg_sq"].append(state["exp_avg_sq"].clone())


def floats(values):
    return "{" + ", ".join(f"{float(v).hex()}f" for v in values) + "}"


with open(os.path.join(os.path.dirname(__file__), "adamw.h"), "w") as out:
    out.write("/* Written by adamw.py: steps of PyTorch's AdamW. */\n/* clang-format off */\n")
    out.write(f"enum {{ ADAMW_VALUES = {VALUES}, ADAMW_STEPS = {STEPS} }};\n")
    out.write(f"#define ADAMW_LR {LR}f\n")
    out.write(f"#define ADAMW_HYPER {{.beta1 = {BETAS[0]}, .beta2 = {BETAS[1]}, .eps = {EPS}, .weight_decay = {DECAY}}}\n")
    out.write(f"static const float adamw_start[ADAMW_VALUES] = {floats(start)};\n")
    for name, steps in rows.items():
        out.write(f"static const float adamw_{name}[ADAMW_STEPS][ADAMW_VALUES] = {{\n")
        for values in steps:
            out.write(f"    {floats(values)},\n")
        out.write("};\n")
    out.write("/* clang-format on */\n")
