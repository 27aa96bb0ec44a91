"""The networks that the comparisons train, as PyTorch modules with the layers of Lockstep's models."""
import torch
from torch import nn
from torch.nn import functional as F


class VGG11Cifar(nn.Module):
    """VGG11 with batch normalisation for 32x32 images and one dense layer: Lockstep's vgg11-cifar."""

    STAGES = [(64,), (128,), (256, 256), (512, 512), (512, 512)]

    def __init__(self, classes):
        super().__init__()
        layers, channels = [], 3
        for stage in self.STAGES:
            for width in stage:
                layers += [nn.Conv2d(channels, width, kernel_size=3, padding=1), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
                channels = width
            layers.append(nn.MaxPool2d(kernel_size=2))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(channels, classes)

    def forward(self, images):
        return self.classifier(torch.flatten(self.features(images), 1))


class LeNet(nn.Module):
    """Two convolutions of 5x5 and two dense layers for 28x28 grey images: Lockstep's lenet."""

    def __init__(self, classes):
        super().__init__()
        self.first = nn.Conv2d(1, 32, kernel_size=5, padding=2)
        self.second = nn.Conv2d(32, 64, kernel_size=5, padding=2)
        self.hidden = nn.Linear(64 * 7 * 7, 512)
        self.logits = nn.Linear(512, classes)

    def forward(self, images):
        maps = F.max_pool2d(F.relu(self.first(images)), 2)
        maps = F.max_pool2d(F.relu(self.second(maps)), 2)
        return self.logits(F.relu(self.hidden(torch.flatten(maps, 1))))


OWN = {"vgg11_cifar": VGG11Cifar, "lenet": LeNet}


def make(name, classes):
    """A network of this file, or torchvision's of that name with random weights."""
    if name in OWN:
        return OWN[name](classes)
    from torchvision.models import get_model

    return get_model(name, weights=None, num_classes=classes)


def channels_of(name):
    return 1 if name == "lenet" else 3


def batch(name, count, size, classes, device="cpu"):
    """Random images and labels, made once: reading and decoding are no part of the comparison."""
    images = torch.randn(count, channels_of(name), size, size, device=device)
    labels = torch.randint(classes, (count,), device=device)
    return images, labels
