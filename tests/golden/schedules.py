#!/usr/bin/env python3
"""Learning rates of PyTorch's schedulers for tests/unit/optim/test_schedule.c, as the header schedules.h beside this script.

Run it with torch installed: tests/golden/schedules.py. The losses go down, stay, rise, and go down by less than the threshold.
"""
import os
import torch
from torch.optim import lr_scheduler

RATE, STEPS = 1.6, 40
LOSSES = [2.0, 1.5, 1.5, 1.49999, 1.6, 1.4, 1.4, 1.7, 1.41, 1.3999, 1.3, 1.3, 1.3, 1.3, 1.3, 1.3, 1.2999, 1.2, 1.5, 1.5,
          1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 0.5, 0.6, 0.7, 0.8]


def rates(make, values):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=RATE)
    scheduler, found = make(optimizer), []
    for value in values:
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step(value) if value is not None else scheduler.step()
    found.append(optimizer.param_groups[0]["lr"])
    return found


rows = {
    "polynomial": rates(lambda o: lr_scheduler.PolynomialLR(o, STEPS), [None] * STEPS),
    "polynomial_squared": rates(lambda o: lr_scheduler.PolynomialLR(o, STEPS, power=2.0), [None] * STEPS),
    "exponential": rates(lambda o: lr_scheduler.ExponentialLR(o, 0.97), [None] * STEPS),
    "plateau": rates(lambda o: lr_scheduler.ReduceLROnPlateau(o, factor=0.1, patience=2), LOSSES),
    "plateau_low": rates(lambda o: lr_scheduler.ReduceLROnPlateau(o, factor=0.5, patience=0, min_lr=0.3), LOSSES),
}

with open(os.path.join(os.path.dirname(__file__), "schedules.h"), "w") as out:
    out.write("/* Written by schedules.py: learning rates of PyTorch's schedulers before each step, and after the last. */\n")
    out.write("/* clang-format off */\n")
    out.write(f"enum {{ GOLDEN_STEPS = {STEPS}, GOLDEN_LOSSES = {len(LOSSES)} }};\n")
    out.write("static const double golden_losses[] = {" + ", ".join(map(repr, LOSSES)) + "};\n")
    for name, values in rows.items():
        out.write(f"static const double golden_{name}[] = {{" + ", ".join(repr(v) for v in values) + "};\n")
    out.write("/* clang-format on */\n")
