"""Makes the golden files that tests/unit/test_golden.c compares with: what PyTorch computes, in double precision,
for one member of each model family.

    python3 tests/golden/make.py [MODEL...]        needs torch, torchvision, numpy and safetensors

Both sides fill parameters and images from the same counter-based numbers (Philox 4x32-10, src/base/random.h), so a
file holds only results:

    logits              of the first training pass; BN uses batch statistics
    grad/NAME           elements spread over each parameter's gradient, "samples" of them (all where there are fewer)
    norms               the L2 norm of each whole gradient, in the order of the parameters
    stat/NAME           running mean and variance of each BN after the first step
    eval                logits in evaluation mode after the first step
    losses              of ten steps of SGD (or two), each on the next batch
    metadata            model, input, seed, lr, bn, samples, and "parameters": a line "NAME SHAPE" for each parameter, in order
"""
import math
import pathlib
import sys

import numpy as np
import torch
import torch.nn.functional as F
import torchvision.models as tv
from safetensors.numpy import save_file
from torch import nn

BATCH, CLASSES, STEPS, SEEDS = 8, 10, 10, 16
IMAGE_STREAM = 1_000_000
MOMENTUM, DECAY = 0.9, 1e-4
GOOD_MARGIN = 5e-6


def philox_uniform(seed, stream, low, high, count):
    """ls_random_fill_uniform: element i is word i % 4 of block i / 4, 24 bits of it."""
    out = np.empty((count + 3) // 4 * 4, np.float32)
    mask, low32, span = np.uint64(0xFFFFFFFF), np.float32(low), np.float32(high) - np.float32(low)
    for start in range(0, len(out) // 4, 1 << 20):
        index = np.arange(start, min(start + (1 << 20), len(out) // 4), dtype=np.uint64)
        c = [index & mask, index >> np.uint64(32), np.full_like(index, stream & 0xFFFFFFFF),
             np.full_like(index, stream >> 32)]
        k0, k1 = seed & 0xFFFFFFFF, seed >> 32
        for _ in range(10):
            p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
            c = [(p1 >> np.uint64(32)) ^ c[1] ^ np.uint64(k0), p1 & mask,
                 (p0 >> np.uint64(32)) ^ c[3] ^ np.uint64(k1), p0 & mask]
            k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
        words = np.stack(c, axis=1).reshape(-1)
        uniform = (words >> np.uint64(8)).astype(np.float32) * np.float32(2.0**-24)
        out[4 * start:4 * start + len(words)] = low32 + span * uniform
    return out[:count]


def parameter_values(seed, number, name, shape, previous_shape, bn):
    """He's range for weights, so that activations keep their size, and small biases. BN shifts are positive and the
    last BN of a bottleneck is small: otherwise fifty layers of ReLU on a small batch amplify the rounding of single
    precision, PyTorch's too, to a hundredth of the gradient."""
    if len(shape) > 1:
        high = np.float32(math.sqrt(6 / math.prod(shape[1:])))
        low = -high
    elif name.endswith(".weight"):
        low, high = (0.1, 0.3) if name.endswith(".bn3.weight") else bn[:2]
    else:
        low, high = bn[2:] if len(previous_shape) == 1 else (-0.1, 0.1)
    return philox_uniform(seed, number, low, high, math.prod(shape)).reshape(shape)


# --- models that torchvision does not have ------------------------------------------------------------------------

def same_total(size, kernel, stride):
    return max((-(-size // stride) - 1) * stride + kernel - size, 0)


def pad_same(x, kernel, stride, value):
    h, w = (same_total(s, kernel, stride) for s in x.shape[2:])
    return F.pad(x, (w // 2, w - w // 2, h // 2, h - h // 2), value=value)


class SameConv(nn.Conv2d):
    def forward(self, x):
        return super().forward(pad_same(x, self.kernel_size[0], self.stride[0], 0.0))


class SamePool(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = nn.MaxPool2d(3, 2)

    def forward(self, x):
        return self.pool(pad_same(x, 3, 2, -math.inf))


def named(**layers):
    net = nn.Sequential()
    for name, layer in layers.items():
        net.add_module(name, layer)
    return net


def mlp():
    return named(flatten=nn.Flatten(), fc1=nn.Linear(784, 512), relu1=nn.ReLU(), fc2=nn.Linear(512, 512),
                 relu2=nn.ReLU(), fc3=nn.Linear(512, CLASSES))


def lenet():
    return nn.Sequential(nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 5, padding=2),
                         nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64 * 7 * 7, 512), nn.ReLU(),
                         nn.Linear(512, CLASSES))


def vgg11_cifar():
    layers, channels = [], 3
    for out in [64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0]:
        if out:
            layers += [nn.Conv2d(channels, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU()]
            channels = out
        else:
            layers += [nn.MaxPool2d(2, 2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, CLASSES))


def convnet():
    layers, channels = {}, 3
    for i in range(4):
        layers[f"conv{i + 1}"], layers[f"relu{i + 1}"] = nn.Conv2d(channels, 64, 3, padding=1), nn.ReLU()
        channels = 64
        if i % 2:
            layers[f"pool{i // 2 + 1}"] = SamePool()
    return named(**layers, flatten=nn.Flatten(), fc1=nn.Linear(4096, 256), relu5=nn.ReLU(), fc2=nn.Linear(256, 128),
                 relu6=nn.ReLU(), fc3=nn.Linear(128, CLASSES))


def alexnet_cntk():
    norm = nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75, k=1.0)
    return named(conv1=SameConv(3, 96, 11, stride=4), relu1=nn.ReLU(), norm1=norm, pool1=SamePool(),
                 conv2=SameConv(96, 192, 5), relu2=nn.ReLU(), norm2=norm, pool2=SamePool(),
                 conv3=SameConv(192, 384, 3), relu3=nn.ReLU(), conv4=SameConv(384, 384, 3), relu4=nn.ReLU(),
                 conv5=SameConv(384, 256, 3), relu5=nn.ReLU(), pool5=SamePool(), flatten=nn.Flatten(),
                 fc6=nn.Linear(1024, 4096), relu6=nn.ReLU(), fc7=nn.Linear(4096, 4096), relu7=nn.ReLU(),
                 fc8=nn.Linear(4096, CLASSES))


def torchvision_model(name, **arguments):
    return lambda: getattr(tv, name)(num_classes=CLASSES, **arguments)


# Ranges of BN's scales and shifts. FAR keeps off the ReLU's kink where activations are so many that some would be close.
BN, FAR_BN = (0.75, 1.25, 0.5, 1.5), (0.5, 1, 1.5, 2.5)

# Models of many parameters have fewer samples of each and two steps, so that files stay small and tests quick.
MANY, FEW = 256, 16

# name in Lockstep: how to make it, channels, side, lr (small enough that rounding does not grow), BN, samples (MANY)
MODELS = {
    "mlp": (mlp, 1, 28, 0.01, BN),
    "lenet": (lenet, 1, 28, 0.0005, BN),
    "convnet": (convnet, 3, 32, 0.0001, BN),
    "vgg11-cifar": (vgg11_cifar, 3, 32, 0.0005, FAR_BN),
    "alexnet": (torchvision_model("alexnet", dropout=0), 3, 64, 0.00005, BN),
    "alexnet-cntk": (alexnet_cntk, 3, 64, 0.0001, BN),
    "vgg11": (torchvision_model("vgg11", dropout=0), 3, 32, 0.00003, BN),
    "vgg11_bn": (torchvision_model("vgg11_bn", dropout=0), 3, 32, 0.0001, FAR_BN),
    "resnet18": (torchvision_model("resnet18"), 3, 64, 0.0005, BN),
    "resnet50": (torchvision_model("resnet50"), 3, 32, 0.0002, BN),
    "mobilenet_v2": (torchvision_model("mobilenet_v2", dropout=0), 3, 48, 0.0002, FAR_BN),
    "resnext50_32x4d": (torchvision_model("resnext50_32x4d"), 3, 32, 0.0002, BN, FEW),
    "densenet121": (torchvision_model("densenet121"), 3, 32, 0.0002, FAR_BN, FEW),
    "squeezenet1_1": (torchvision_model("squeezenet1_1", dropout=0), 3, 64, 0.0002, BN, FEW),
    "efficientnet_b0": (torchvision_model("efficientnet_b0", dropout=0, stochastic_depth_prob=0), 3, 64, 0.0002, BN, FEW),
    "mobilenet_v3_small": (torchvision_model("mobilenet_v3_small", dropout=0), 3, 64, 0.0002, FAR_BN, FEW),
}


# --- recording ----------------------------------------------------------------------------------------------------

def sample(values, samples):
    """One element of each of `samples` equal stretches, not always the same one: channels would alias."""
    flat = values.detach().reshape(-1)
    count = min(samples, flat.numel())
    i = torch.arange(count)
    return flat[i * flat.numel() // count + i * 7919 % (flat.numel() // count)].float().numpy()


def batch(seed, step, channels, side):
    images = philox_uniform(seed, IMAGE_STREAM + step, -1.75, 1.75, BATCH * channels * side * side)
    labels = [(3 * i + step) % CLASSES for i in range(BATCH)]
    return torch.from_numpy(images).double().reshape(BATCH, channels, side, side), torch.tensor(labels)


def fill(net, seed, bn):
    previous = None
    for number, (key, parameter) in enumerate(net.named_parameters()):
        values = parameter_values(seed, number, key, parameter.shape, previous, bn)
        parameter.data.copy_(torch.from_numpy(values))
        previous = parameter.shape
    for layer in net.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.reset_running_stats()


def relu_margin(layer, inputs, _):
    layer.margin = min(layer.margin, (inputs[0].abs().min() / inputs[0].std()).item())


def hard_margin(layer, inputs, _):
    layer.margin = min(layer.margin, ((inputs[0].abs() - 3).abs().min() / inputs[0].std()).item())


def pool_margin(layer, inputs, _):
    """Only windows whose maximum passes the ReLU in front count."""
    kernel, stride, padding = layer.kernel_size, layer.stride, layer.padding
    x = F.pad(inputs[0], [padding] * 4, value=-math.inf) if padding else inputs[0]
    top = x.unfold(2, kernel, stride).unfold(3, kernel, stride).flatten(4).topk(2).values
    gap = (top[..., 0] - top[..., 1])[top[..., 0] > 0]
    if gap.numel():
        layer.margin = min(layer.margin, (gap.min() / inputs[0].std()).item())


def kink_margin(net, images):
    """How far, in deviations of its tensor, the closest value is from where a ReLU or a max pooling would decide
    otherwise. A decision that rounding turns over moves a gradient by a thousandth, whoever computes it."""
    kinks = {(nn.ReLU, nn.ReLU6): relu_margin, (nn.Hardswish, nn.Hardsigmoid): hard_margin, nn.MaxPool2d: pool_margin}
    hooks, layers = [], []
    for layer in net.modules():
        margin = next((m for kinds, m in kinks.items() if isinstance(layer, kinds)), None)
        if margin:
            layer.inplace, layer.margin = False, math.inf
            hooks.append(layer.register_forward_hook(margin))
            layers.append(layer)
    with torch.no_grad():
        net(images)
    for hook in hooks:
        hook.remove()
    return min((layer.margin for layer in layers), default=math.inf)


def best_seed(net, channels, side, bn):
    """A seed whose first batch keeps its distance from every kink: far more than rounding moves a value."""
    margins = {}
    for seed in range(SEEDS):
        fill(net, seed, bn)
        margins[seed] = kink_margin(net, batch(seed, 0, channels, side)[0])
        if margins[seed] > GOOD_MARGIN:
            break
    best = max(margins, key=margins.get)
    return best, margins[best]


def record(name):
    make, channels, side, lr, bn, samples = (*MODELS[name], MANY)[:6]
    with torch.device("meta"):
        net = make()
    net = net.double().to_empty(device="cpu")
    seed, margin = best_seed(net, channels, side, bn)
    fill(net, seed, bn)
    parameters = list(net.named_parameters())
    sgd = torch.optim.SGD(net.parameters(), lr=lr, momentum=MOMENTUM, weight_decay=DECAY)
    results, losses = {}, []
    for step in range(STEPS if samples == MANY else 2):
        images, labels = batch(seed, step, channels, side)
        logits = net(images)
        loss = F.cross_entropy(logits, labels)
        sgd.zero_grad(set_to_none=True)
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            results["logits"] = logits.detach().float().numpy()
            results["norms"] = np.float32([p.grad.norm().item() for _, p in parameters])
            results |= {f"grad/{key}": sample(p.grad, samples) for key, p in parameters}
        sgd.step()
        if step == 0:
            results |= {f"stat/{key}": sample(value, samples) for key, value in net.named_buffers() if "running" in key}
            net.eval()
            with torch.no_grad():
                results["eval"] = net(images).float().numpy()
            net.train()
    results["losses"] = np.float32(losses)
    listing = "\n".join(f"{key} {'x'.join(map(str, p.shape))}" for key, p in parameters)
    metadata = {"model": name, "input": f"{channels}x{side}x{side}", "seed": str(seed), "lr": str(lr),
                "bn": " ".join(map(str, bn)), "samples": str(samples), "parameters": listing}
    path = pathlib.Path(__file__).parent / f"{name}.safetensors"
    save_file(results, path, metadata=metadata)
    print(f"{path.name}: {path.stat().st_size} bytes, margin {margin:.1e}, losses",
          " ".join(f"{x:.4f}" for x in losses), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(2)
    for model in sys.argv[1:] or MODELS:
        record(model)
