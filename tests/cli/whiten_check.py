"""Images for test-fast.sh, and what their whitening filters must be.

    whiten_check.py make DIR      a small CIFAR-10: colour gradients with noise, 5 files of 39 images and a test part
    whiten_check.py check FILE    the filters of a checkpoint whiten the patches of these images: by the definition
"""
import json
import os
import random
import struct
import sys

MEAN, DEVIATION, EPS = (0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616), 0.0005


def image(seed):
    r = random.Random(seed)
    base = [r.randrange(40, 216) for _ in range(3)]
    slope = [r.uniform(-4, 4), r.uniform(-4, 4)]
    planes = [[min(255, max(0, int(base[c] + slope[0] * (y - 16) + slope[1] * (x - 16) + r.gauss(0, 12))))
               for y in range(32) for x in range(32)] for c in range(3)]
    return bytes([seed % 10]) + b"".join(bytes(p) for p in planes)


def make(folder):
    os.makedirs(folder)
    for part in range(5):
        with open(f"{folder}/data_batch_{part + 1}.bin", "wb") as f:
            f.write(b"".join(image(39 * part + i) for i in range(39)))
    with open(f"{folder}/test_batch.bin", "wb") as f:
        f.write(b"".join(image(1000 + i) for i in range(39)))
    with open(f"{folder}/batches.meta.txt", "w") as f:
        f.write("".join(f"class{i}\n" for i in range(10)))


def patches():
    """All 2x2 patches two pixels apart, normalised."""
    for seed in range(195):
        data = image(seed)[1:]
        planes = [[(v / 255 - MEAN[c]) / DEVIATION[c] for v in data[1024 * c : 1024 * (c + 1)]] for c in range(3)]
        for y in range(0, 31, 2):
            for x in range(0, 31, 2):
                yield [planes[c][(y + dy) * 32 + x + dx] for c in range(3) for dy in (0, 1) for dx in (0, 1)]


def check(path):
    with open(path, "rb") as f:
        data = f.read()
    (n,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + n])
    first, end = header["whiten.weight"]["data_offsets"]
    w = struct.unpack("<288f", data[8 + n + first : 8 + n + end])
    rows = [w[12 * i : 12 * i + 12] for i in range(24)]
    assert all(abs(a + b) < 1e-6 for i in range(12) for a, b in zip(rows[i], rows[12 + i])), "the second half is not negated"
    covariance, count = [[0.0] * 12 for _ in range(12)], 0
    for p in patches():
        count += 1
        for i in range(12):
            for j in range(12):
                covariance[i][j] += p[i] * p[j]
    # v = w * s is a unit eigenvector with variance s^2 - EPS, so that covariance w = (1 / |w|^2 - EPS) w.
    variances = []
    for row in rows[:12]:
        image_of = [sum(covariance[i][j] / count * row[j] for j in range(12)) for i in range(12)]
        variance = 1 / sum(v * v for v in row) - EPS
        variances.append(variance)
        assert all(abs(a - variance * b) < 1e-4 * max(1, abs(variance * b)) for a, b in zip(image_of, row)), "no eigenvector"
    assert variances == sorted(variances, reverse=True), "the largest variance is not first"
    print("whitening filters:", len(rows))


{"make": make, "check": check}[sys.argv[1]](sys.argv[2])
