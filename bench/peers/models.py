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


class Mlp(nn.Sequential):
    """Two hidden layers of 512 on 28x28 grey images: Lockstep's mlp."""

    def __init__(self, classes):
        super().__init__(nn.Flatten(), nn.Linear(28 * 28, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(),
                         nn.Linear(512, classes))


class ConvNet(nn.Sequential):
    """CNTK's example for 32x32 images: Lockstep's convnet."""

    def __init__(self, classes):
        layers, channels = [], 3
        for _ in range(2):
            for _ in range(2):
                layers += [nn.Conv2d(channels, 64, kernel_size=3, padding=1), nn.ReLU(inplace=True)]
                channels = 64
            layers += [nn.ZeroPad2d((0, 1, 0, 1)), nn.MaxPool2d(kernel_size=3, stride=2)]
        super().__init__(*layers, nn.Flatten(), nn.Linear(64 * 8 * 8, 256), nn.ReLU(), nn.Dropout(), nn.Linear(256, 128),
                         nn.ReLU(), nn.Dropout(), nn.Linear(128, classes))


OWN = {"vgg11_cifar": VGG11Cifar, "lenet": LeNet, "mlp": Mlp, "convnet": ConvNet}


def make(name, classes):
    """A network of this file, or torchvision's of that name with random weights."""
    if name in OWN:
        return OWN[name](classes)
    from torchvision.models import get_model

    return get_model(name, weights=None, num_classes=classes)


def channels_of(name):
    return 1 if name in ("lenet", "mlp") else 3


def batch(name, count, size, classes, device="cpu"):
    """Random images and labels, made once: reading and decoding are no part of the comparison. size: height and width, or a pair."""
    height, width = size if isinstance(size, tuple) else (size, size)
    images = torch.randn(count, channels_of(name), height, width, device=device)
    labels = torch.randint(classes, (count,), device=device)
    return images, labels
