"""Writes IDX files with some digits of MNIST: mnist_digits.py SOURCE FOLDER DIGITS TRAIN TEST

DIGITS such as 5678 become the classes 0, 1, ...; TRAIN and TEST are the numbers of images."""
import gzip
import os
import struct
import sys

source, folder, digits, train, test = sys.argv[1:]
os.makedirs(folder, exist_ok=True)
for part, most in (("train", int(train)), ("t10k", int(test))):
    with gzip.open(os.path.join(source, part + "-images-idx3-ubyte.gz")) as f:
        images = f.read()[16:]
    with gzip.open(os.path.join(source, part + "-labels-idx1-ubyte.gz")) as f:
        labels = f.read()[8:]
    chosen = [i for i, label in enumerate(labels) if str(label) in digits][:most]
    with open(os.path.join(folder, part + "-images-idx3-ubyte"), "wb") as f:
        f.write(struct.pack(">IIII", 0x803, len(chosen), 28, 28))
        for i in chosen:
            f.write(images[784 * i : 784 * (i + 1)])
    with open(os.path.join(folder, part + "-labels-idx1-ubyte"), "wb") as f:
        f.write(struct.pack(">II", 0x801, len(chosen)))
        f.write(bytes(digits.index(str(labels[i])) for i in chosen))
