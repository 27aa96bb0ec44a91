"""Reads what `lockstep data convert` writes with other programs, and compares it with the image folder SOURCE.

    converted.py photos FOLDER                 makes JPEG and PNG photographs of several sizes, one turned by Exif
    converted.py tar FOLDER SOURCE             tar shards: tarfile, and webdataset where it is installed
    converted.py tfrecord FOLDER SOURCE        TFRecords: own reader with CRCs, and TensorBoard's where it is installed
    converted.py pixels PACKED SOURCE H [W]    the pixels of a packed folder are those of Pillow's resize
    converted.py jpegs FOLDER H W              every image is a JPEG of that size
    converted.py encoded PACKED                every sample is a JPEG
"""
import glob
import io
import os
import struct
import sys
import tarfile

from PIL import Image, ImageOps


def samples(source, part):
    names = sorted(os.listdir(f"{source}/train"))
    for number, name in enumerate(names):
        for folder, folders, files in os.walk(f"{source}/{part}/{name}"):
            folders.sort()
            for file in sorted(files):
                yield number, name, file, open(f"{folder}/{file}", "rb").read()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def check_tar(folder, source):
    for part in ("train", "val"):
        want = list(samples(source, part))
        shards = sorted(glob.glob(f"{folder}/{part}-*.tar"))
        got = {}
        for shard in shards:
            with tarfile.open(shard) as archive:
                for member in archive:
                    got[member.name] = archive.extractfile(member).read()
        assert len(got) == 2 * len(want), (len(got), len(want))
        for i, (number, _, _, data) in enumerate(want):
            assert got[f"{i:08d}.ppm"] == data and got[f"{i:08d}.cls"] == b"%d" % number
        try:
            import webdataset
        except ImportError:
            continue
        pairs = list(webdataset.WebDataset(shards, shardshuffle=False).decode("pil").to_tuple("ppm", "cls"))
        assert [label for _, label in pairs] == [number for number, _, _, _ in want]
        assert all(image.size == (20, 20) for image, _ in pairs)
    names = open(f"{folder}/lockstep-classes.txt", encoding="utf-8").read().split("\n")[:-1]
    assert names == sorted(os.listdir(f"{source}/train"), key=os.fsencode)


def records(path):
    data = open(path, "rb").read()
    at = 0
    while at < len(data):
        (size,) = struct.unpack_from("<Q", data, at)
        assert struct.unpack_from("<I", data, at + 8)[0] == masked(data[at : at + 8])
        record = data[at + 12 : at + 12 + size]
        assert struct.unpack_from("<I", data, at + 12 + size)[0] == masked(record)
        yield record
        at += 16 + size


def fields(data):
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        else:
            assert key & 7 == 2
            size = varint()
            yield key >> 3, data[at : at + size]
            at += size


def parse(record):
    features = {}
    for entry in fields(dict(fields(record))[1]):
        key, feature = [value for _, value in fields(entry[1])]
        kind, values = next(fields(feature))
        assert kind in (1, 3)
        features[key.decode()] = next(fields(values))[1]
    return features


def check_tfrecord(folder, source):
    for part, name in (("train", "train"), ("val", "validation")):
        want = list(samples(source, part))
        shards = sorted(glob.glob(f"{folder}/{name}-*-of-*"))
        got = [parse(record) for shard in shards for record in records(shard)]
        assert len(got) == len(want)
        for have, (number, cls, _, data) in zip(got, want):
            assert have["image/encoded"] == data
            assert have["image/class/label"] == number + 1
            assert have["image/class/text"].decode() == cls and have["image/class/synset"].decode() == cls
            assert have["image/height"] == 20 and have["image/width"] == 20 and have["image/channels"] == 3
            assert have["image/colorspace"] == b"RGB" and have["image/format"]
        try:
            from tensorboard.compat.tensorflow_stub.errors import OutOfRangeError
            from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import PyRecordReader_New
        except ImportError:
            continue
        read = []
        for shard in shards:
            reader = PyRecordReader_New(shard)
            try:
                while True:
                    reader.GetNext()
                    read.append(parse(reader.record())["image/encoded"])
            except OutOfRangeError:
                pass
        assert read == [data for _, _, _, data in want]


def make_photos(folder):
    for i, (part, cls) in enumerate((p, c) for p in ("train", "val") for c in ("a", "b")):
        os.makedirs(f"{folder}/{part}/{cls}")
        for k in range(2):
            width, height = 37 + 11 * i, 61 - 9 * k
            image = Image.frombytes("RGB", (width, height), os.urandom(3 * width * height))
            if k == 0:
                image.save(f"{folder}/{part}/{cls}/{k}.png")
                continue
            exif = Image.Exif()
            exif[0x0112] = 6
            image.save(f"{folder}/{part}/{cls}/{k}.jpg", quality=95, exif=exif)


def packed(path):
    data = open(path, "rb").read()
    assert data[:8] == b"LSPACKED"
    count, _, index = struct.unpack_from("<QQQ", data, 16)
    for i in range(count):
        offset, _, size, crc, label, height, width, channels = struct.unpack_from("<QQIIiHHB", data, index + 40 * i)
        sample = data[offset : offset + size]
        assert crc32c(sample) == crc
        yield label, height, width, channels, sample


def check_pixels(folder, source, sizes):
    for part in ("train", "val"):
        got = list(packed(f"{folder}/{part}.packed"))
        want = list(samples(source, part))
        assert len(got) == len(want)
        for (label, height, width, channels, sample), (number, _, _, data) in zip(got, want):
            image = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
            if len(sizes) == 2:
                size = (sizes[1], sizes[0])
            else:
                shorter = min(image.size)
                size = tuple(side * sizes[0] // shorter for side in image.size)
            pixels = image.resize(size, Image.BILINEAR).tobytes()
            assert (label, channels, width, height) == (number, 3, *size)
            assert max(abs(a - b) for a, b in zip(sample, pixels)) <= 1


def main(what, folder, *more):
    if what == "photos":
        make_photos(folder)
    elif what == "tar":
        check_tar(folder, *more)
    elif what == "tfrecord":
        check_tfrecord(folder, *more)
    elif what == "pixels":
        check_pixels(folder, more[0], [int(side) for side in more[1:]])
    elif what == "jpegs":
        files = [f for f in glob.glob(f"{folder}/*/*/*")]
        assert len(files) == 8
        for file in files:
            image = Image.open(file)
            assert image.format == "JPEG" and image.size == (int(more[1]), int(more[0])), file
    else:
        for _, _, _, channels, sample in packed(f"{folder}/train.packed"):
            assert channels == 0 and Image.open(io.BytesIO(sample)).format == "JPEG"


main(*sys.argv[1:])
