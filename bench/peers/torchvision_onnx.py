#!/usr/bin/env python3
"""torchvision's models against Lockstep's: torchvision_onnx.py LOCKSTEP [MODEL...]

Counts parameters, and compares logits: random weights and running statistics of torchvision become an ONNX file by `lockstep
export`, plain and with --fold-bn, which ONNX Runtime runs on a batch of three. Needs torch, torchvision, safetensors, onnxruntime.
"""
import os
import re
import subprocess
import sys
import tempfile

import numpy
import onnxruntime
import safetensors.torch
import torch
import torchvision

SIDE = 96


def output(*words):
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def shuffled(name):
    """A model whose BN layers do something."""
    model = getattr(torchvision.models, name)(weights=None)
    for layer in model.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.running_mean.normal_(0, 0.1)
            layer.running_var.uniform_(0.5, 1.5)
            layer.weight.data.uniform_(0.5, 1.5)
            layer.bias.data.normal_(0, 0.1)
    return model.eval()


def largest_difference(lockstep, name, model, images, fold):
    """As a share of the largest logit."""
    with torch.no_grad():
        logits = model(images).numpy()
    output(lockstep, "export", "model.safetensors", "--model", name, "--input", f"3x{SIDE}x{SIDE}", "--classes", "1000",
           "--onnx", "model.onnx", *fold)
    session = onnxruntime.InferenceSession("model.onnx")
    found = session.run(None, {session.get_inputs()[0].name: images.numpy()})[0]
    return numpy.abs(logits - found).max() / numpy.abs(logits).max()


def main():
    lockstep, wanted = os.path.abspath(sys.argv[1]), sys.argv[2:]
    listed = [line.split()[0] for line in output(lockstep, "models").splitlines()[1:] if line.strip()]
    names = [n for n in wanted or listed if hasattr(torchvision.models, n)]
    torch.manual_seed(1)
    os.chdir(tempfile.mkdtemp())
    for name in names:
        model = shuffled(name)
        parameters = [p.numel() for p in model.parameters()]
        plan = output(lockstep, "plan", "--model", name, "--data", "synthetic:3x224x224:1000", "--batch", "1")
        count, tensors = map(int, re.search(r"(\d+) parameters in (\d+) tensors", plan).groups())
        same = (count, tensors) == (sum(parameters), len(parameters))
        safetensors.torch.save_file(model.state_dict(), "model.safetensors")
        images = torch.randn(3, 3, SIDE, SIDE)
        apart = [largest_difference(lockstep, name, model, images, fold) for fold in ([], ["--fold-bn"])]
        print(f"{name}: {count} parameters in {tensors} tensors{'' if same else ': DIFFERENT'};"
              f" logits within {apart[0]:.1e}, folded {apart[1]:.1e}", flush=True)


main()
