"""Makes small archives with the names and layouts of the public ones in the current folder, and SHA256SUMS for them."""
import gzip
import hashlib
import io
import os
import random
import struct
import sys
import tarfile
import zipfile

image = open(sys.argv[1], "rb").read()
draw = random.Random(7)


def tar(name, members, links=()):
    with tarfile.open(name, "w:gz") as out:
        for path, data in members:
            info = tarfile.TarInfo(path)
            info.size = len(data)
            info.mtime = 1234567890.5  # a pax header
            out.addfile(info, io.BytesIO(data))
        for path, kind, target in links:
            info = tarfile.TarInfo(path)
            info.type = kind
            info.linkname = target
            out.addfile(info)


def records(labels, classes, count=6):
    return b"".join(
        bytes(draw.randrange(c) for c in labels) + draw.randbytes(3072) for _ in range(count)
    )


def cifar10(folder="cifar-10-batches-bin"):
    names = "airplane automobile bird cat deer dog frog horse ship truck".split()
    members = [(f"{folder}/batches.meta.txt", "\n".join(names).encode() + b"\n")]
    members += [(f"{folder}/data_batch_{i}.bin", records([10], 10)) for i in range(1, 6)]
    return members + [(f"{folder}/test_batch.bin", records([10], 10))]


def idx(shape):
    head = struct.pack(">I", 0x800 + len(shape)) + b"".join(struct.pack(">I", n) for n in shape)
    count = shape[0]
    for n in shape[1:]:
        count *= n
    return head + bytes(i % 10 for i in range(count))


def pack(name, members, **options):
    with zipfile.ZipFile(name, "w", **options) as out:
        for path, data in members:
            out.writestr(path, data)


def tiny(method):
    members = [("tiny-imagenet-200/", b""), ("tiny-imagenet-200/wnids.txt", b"n02\nn01\n")]
    members += [("tiny-imagenet-200/words.txt", b"n01\tgoldfish\nn02\ttoad, frog\n")]
    lines = ""
    for wnid in ("n01", "n02"):
        members += [(f"tiny-imagenet-200/train/{wnid}/images/{wnid}_{i}.JPEG", image) for i in range(3)]
        members += [(f"tiny-imagenet-200/val/images/val_{wnid}.JPEG", image)]
        lines += f"val_{wnid}.JPEG\t{wnid}\t0\t0\t62\t62\n"
    members += [("tiny-imagenet-200/val/val_annotations.txt", lines.encode())]
    pack("tiny-imagenet-200.zip", members, compression=method)


tar("cifar-10-binary.tar.gz", cifar10())
tar(
    "cifar-100-binary.tar.gz",
    [
        ("cifar-100-binary/train.bin", records([20, 100], 100)),
        ("cifar-100-binary/test.bin", records([20, 100], 100)),
        ("cifar-100-binary/fine_label_names.txt", "".join(f"c{i}\n" for i in range(100)).encode()),
    ],
)
tiny(zipfile.ZIP_DEFLATED)
for part, n in (("train", 20), ("t10k", 10)):
    for kind, shape in (("images-idx3", (n, 28, 28)), ("labels-idx1", (n,))):
        with gzip.open(f"{part}-{kind}-ubyte.gz", "wb") as out:
            out.write(idx(shape))

# Archives that nobody should unpack, each in a folder of its own with its checksums.
bad = {
    "above": lambda: tar("cifar-10-binary.tar.gz", cifar10() + [("cifar-10-batches-bin/../../escaped", b"x")]),
    "absolute": lambda: tar("cifar-10-binary.tar.gz", cifar10() + [("/tmp/lockstep-escaped", b"x")]),
    "link": lambda: tar("cifar-10-binary.tar.gz", cifar10(), [("cifar-10-batches-bin/a", tarfile.SYMTYPE, "/etc")]),
    "hard": lambda: tar("cifar-10-binary.tar.gz", cifar10(), [("cifar-10-batches-bin/a", tarfile.LNKTYPE, "/etc/passwd")]),
    "pipe": lambda: tar("cifar-10-binary.tar.gz", cifar10(), [("cifar-10-batches-bin/a", tarfile.FIFOTYPE, "")]),
    "twice": lambda: tar("cifar-10-binary.tar.gz", cifar10() * 2),
    "other": lambda: tar("cifar-10-binary.tar.gz", cifar10("elsewhere")),
    "short": lambda: (tar("whole", cifar10()), open("cifar-10-binary.tar.gz", "wb").write(open("whole", "rb").read()[:9000])),
    "text": lambda: open("cifar-10-binary.tar.gz", "w").write("<html>not an archive</html>" * 99),
    "zip-above": lambda: pack("tiny-imagenet-200.zip", [("tiny-imagenet-200/../../escaped", b"x")]),
    "zip-short": lambda: open("tiny-imagenet-200.zip", "wb").write(open("../../tiny-imagenet-200.zip", "rb").read()[:-40]),
    "zip-flipped": lambda: flipped("../../tiny-imagenet-200.zip", "tiny-imagenet-200.zip"),
    "zip-link": lambda: zip_link(),
}


def flipped(source, target):
    data = bytearray(open(source, "rb").read())
    data[len(image) // 2 + 300] ^= 1
    open(target, "wb").write(data)


def zip_link():
    info = zipfile.ZipInfo("tiny-imagenet-200/a")
    info.create_system = 3
    info.external_attr = 0o120777 << 16
    pack("tiny-imagenet-200.zip", [(info, b"/etc")])


def sums():
    with open("SHA256SUMS", "w") as out:
        for name in sorted(n for n in os.listdir(".") if n.endswith((".gz", ".zip"))):
            out.write(f"{hashlib.sha256(open(name, 'rb').read()).hexdigest()}  {name}\n")


for name, make in bad.items():
    os.makedirs(f"bad/{name}")
    os.chdir(f"bad/{name}")
    make()
    sums()
    os.chdir("../..")
sums()
