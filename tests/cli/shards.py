"""Makes shards out of the image folders trees/train and trees/val, by programs that are not Lockstep's: Python's tarfile, and
TensorBoard's writer of records where it is installed.

    shards.py tar FOLDER [cls]      three tar files for each part, in three dialects; cls: with KEY.cls beside each image
    shards.py lmdb FOLDER [planes]  an LMDB folder of Caffe's Datum for each part, by the lmdb package; planes: not encoded
    shards.py tfrecord FOLDER [1]   two TFRecord files for each part; 1: with numbers from 1 instead of synsets
"""
import io
import os
import struct
import sys
import tarfile


def samples(part):
    classes = sorted(os.listdir("trees/train"))
    for number, name in enumerate(classes):
        folder = f"trees/{part}/{name}"
        for file in sorted(os.listdir(folder)):
            yield number, name, file, open(f"{folder}/{file}", "rb").read()


def cut(items, parts):
    each = -(-len(items) // parts)
    return [items[i * each : (i + 1) * each] for i in range(parts)]


def put(archive, name, data):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))


def make_tars(folder, part, cls):
    os.makedirs(f"{folder}/{part}")
    dialects = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
    for i, some in enumerate(cut(list(samples(part)), 3)):
        with tarfile.open(f"{folder}/{part}/shard-{i:06d}.tar", "w", format=dialects[i]) as archive:
            put(archive, "__about__.txt", b"metadata")
            for number, name, file, data in some:
                key = f"{name}/" + "long" * 40 * (i > 0) + file.split(".")[0]
                put(archive, f"{key}.PPM", data)
                put(archive, f"{key}.json", b"{}")
                put(archive, f"{key}.mask.ppm", b"not the image")
                if cls:
                    put(archive, f"{key}.cls", b"%d\n" % number)


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def example(features):
    entries = b""
    for key, value in features.items():
        if isinstance(value, int):
            feature = field(3, field(1, varint(value)))
        else:
            feature = field(1, field(1, value))
        entries += field(1, field(1, key.encode()) + field(2, feature))
    return field(1, entries)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def make_records(folder, part, ones):
    os.makedirs(folder, exist_ok=True)
    name = {"train": "train", "val": "validation"}[part]
    for i, some in enumerate(cut(list(samples(part)), 2)):
        with open(f"{folder}/{name}-{i:05d}-of-00002", "wb") as out:
            try:
                from tensorboard.summary.writer.record_writer import RecordWriter

                write = RecordWriter(out).write
            except ImportError:

                def write(data):
                    length = struct.pack("<Q", len(data))
                    out.write(length + struct.pack("<I", crc32c(length)) + data + struct.pack("<I", crc32c(data)))

            for number, cls, file, data in some:
                features = {"image/height": 20, "image/encoded": data, "image/class/label": number + 1}
                if not ones:
                    features["image/class/synset"] = cls.encode()
                    features["image/filename"] = file.encode()
                write(example(features))


def make_lmdb(folder, part, planes):
    import lmdb

    os.makedirs(f"{folder}/{part}")
    store = lmdb.open(f"{folder}/{part}", map_size=1 << 24)
    with store.begin(write=True) as batch:
        for i, (number, _, _, data) in enumerate(samples(part)):
            if planes:
                width, height = map(int, data.split()[1:3])
                pixels = data[-3 * width * height :]
                blue_first = pixels[2::3] + pixels[1::3] + pixels[0::3]
                datum = b"\x08\x03\x10" + varint(height) + b"\x18" + varint(width) + field(4, blue_first)
            else:
                datum = field(4, data) + b"\x38\x01"
            batch.put(b"%08d" % i, datum + b"\x28" + varint(number))
    store.close()


for part in ("train", "val"):
    if sys.argv[1] == "tar":
        make_tars(sys.argv[2], part, "cls" in sys.argv)
    elif sys.argv[1] == "lmdb":
        make_lmdb(sys.argv[2], part, "planes" in sys.argv)
    else:
        make_records(sys.argv[2], part, "1" in sys.argv)
