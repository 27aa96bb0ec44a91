#!/usr/bin/env python3
"""PyTorch's clip_grad_norm_ for tests/unit/optim/test_clip.c, as the header clip.h beside this script.

Run it with torch installed: tests/golden/clip.py. The gradients of a dense layer of 37 inputs and 10 outputs are exact in binary, so that the
test makes the same ones.
"""
import os
import torch

OUT, IN = 10, 37


def grads():
    weight = torch.tensor([((i * 37) % 64 - 32) / 16 for i in range(OUT * IN)])
    bias = torch.tensor([((i * 5) % 16 - 8) / 4 for i in range(OUT)])
    return weight, bias


def clipped(limit):
    params = [torch.zeros_like(g, requires_grad=True) for g in grads()]
    for p, g in zip(params, grads()):
        p.grad = g.clone()
    norm = torch.nn.utils.clip_grad_norm_(params, limit)
    return norm, params[0].grad, params[1].grad


def floats(values):
    return "{" + ", ".join(f"{float(v).hex()}f" for v in values) + "}"


with open(os.path.join(os.path.dirname(__file__), "clip.h"), "w") as out:
    out.write("/* Written by clip.py: gradients after PyTorch's clip_grad_norm_. */\n/* clang-format off */\n")
    out.write(f"enum {{ CLIP_OUT = {OUT}, CLIP_IN = {IN}, CLIP_WEIGHTS = {OUT * IN} }};\n")
    rows = [(limit, *clipped(limit)) for limit in (0.5, 20.0, 1000.0)]
    out.write("static const struct {\n    double limit, norm;\n    float weight[CLIP_WEIGHTS], bias[CLIP_OUT];\n} clip_golden[] = {\n")
    for limit, norm, weight, bias in rows:
        out.write(f"    {{{limit}, {float(norm)!r}, {floats(weight)}, {floats(bias)}}},\n")
    out.write("};\n/* clang-format on */\n")
