"""The tensors of a safetensors file, with nothing but Python.

    tensors.py list FILE               a line NAME CHECKSUM for each
    tensors.py ratio OLD A B REGEX X   (B - OLD) = X (A - OLD), to rounding, for tensors whose names match
"""
import hashlib
import json
import re
import struct
import sys


def read(path):
    with open(path, "rb") as f:
        data = f.read()
    (n,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + n])
    header.pop("__metadata__", None)
    return {name: data[8 + n + t["data_offsets"][0] : 8 + n + t["data_offsets"][1]] for name, t in header.items()}


def floats(data):
    return struct.unpack("<%df" % (len(data) // 4), data)


if sys.argv[1] == "list":
    for name, data in sorted(read(sys.argv[2]).items()):
        print(name, hashlib.sha256(data).hexdigest())
else:
    old, a, b = (read(path) for path in sys.argv[2:5])
    factor, matched = float(sys.argv[6]), 0
    for name in old:
        if not re.search(sys.argv[5], name) or "running" in name or "tracked" in name:
            continue
        matched += 1
        for was, plain, scaled in zip(floats(old[name]), floats(a[name]), floats(b[name])):
            allowed = 3e-7 * (abs(was) + abs(plain)) + 1e-4 * abs(plain - was) + 1e-9
            assert abs((scaled - was) - factor * (plain - was)) <= allowed, (name, was, plain, scaled)
    assert matched, "no tensor matches"
