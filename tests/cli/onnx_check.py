"""What ONNX Runtime computes from exported files, beside what the program predicts.

    onnx_check.py shake FILE.safetensors GAIN        gives every tensor random values of a sane size, BN's statistics too
    onnx_check.py images FOLDER CxHxW                writes images of that size, and others, made by Pillow
    onnx_check.py same FILE.onnx PREDICTIONS.json    the logits agree: the preprocessing is that of the metadata
"""
import json
import os
import sys

import numpy as np


def shake(path, gain):
    from safetensors import safe_open
    from safetensors.numpy import load_file, save_file

    with safe_open(path, "np") as f:
        metadata = f.metadata()
    random = np.random.default_rng(1)
    tensors = load_file(path)
    for name, old in tensors.items():
        if old.dtype != np.float32:
            continue
        if name.endswith("running_var"):
            new = random.uniform(0.5, 2, old.shape)
        elif old.ndim > 1:
            new = random.normal(0, np.sqrt(float(gain) / np.prod(old.shape[1:])), old.shape)
        else:
            new = old + random.normal(0, 0.1, old.shape)
        tensors[name] = new.astype(np.float32)
    save_file(tensors, path, metadata)


def images(folder, size):
    from PIL import Image

    channels, height, width = map(int, size.split("x"))
    random = np.random.default_rng(2)
    os.makedirs(folder, exist_ok=True)

    def save(name, h, w, mode):
        coarse = random.integers(0, 256, (max(2, h // 7), max(2, w // 7), 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((w, h), Image.BICUBIC).convert(mode).save(os.path.join(folder, name))

    mode = "L" if channels == 1 else "RGB"
    save("exact.png", height, width, mode)
    save("wide ünd hoch.png", 2 * height + 3, 3 * width + 1, "RGB")
    save("grey.png", height + 5, width + 9, "L")


def transform(path, meta):
    """Preprocesses a file by the words of the metadata alone."""
    from PIL import Image

    channels, height, width = map(int, meta["lockstep.input"].split("x"))
    image = Image.open(path).convert("RGB")
    resize, crop = meta["lockstep.eval_resize"], meta["lockstep.eval_crop"]
    w, h = image.size
    if resize != "none":
        n = int(resize)
        w, h = w * n // min(image.size), h * n // min(image.size)
    elif height * w >= width * h:
        w, h = (w * height + h // 2) // h, height
    else:
        w, h = width, (h * width + w // 2) // w
    image = image.resize((w, h), Image.BILINEAR)
    crop_h, crop_w = (height, width) if crop == "none" else map(int, crop.split("x"))
    top, left = round((h - crop_h) / 2), round((w - crop_w) / 2)
    image = image.crop((left, top, left + crop_w, top + crop_h)).convert("RGB" if channels == 3 else "L")
    values = np.asarray(image, np.float32).reshape(height, width, channels).transpose(2, 0, 1) / 255
    mean = np.array(json.loads(meta["lockstep.mean"]), np.float32)[:, None, None]
    deviation = np.array(json.loads(meta["lockstep.deviation"]), np.float32)[:, None, None]
    return (values - mean) / deviation


def same(path, predictions):
    import onnx
    import onnxruntime as ort

    onnx.checker.check_model(path, full_check=True)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    meta = session.get_modelmeta().custom_metadata_map
    source, result = session.get_inputs()[0], session.get_outputs()[0]
    assert source.name == "images" and source.shape[0] == "batch" and result.shape[0] == "batch", source
    predicted = json.load(open(predictions))
    batch = np.stack([transform(one["file"], meta) for one in predicted])
    logits = session.run(None, {"images": batch})[0].astype(np.float64)
    alone = np.concatenate([session.run(None, {"images": batch[i : i + 1]})[0] for i in range(len(batch))])
    scale = np.abs(logits).max()
    assert np.abs(alone - logits).max() <= 1e-5 * scale, "another batch gives other logits"
    if result.name == "probabilities":
        log_p = np.log(logits)
    else:
        log_p = logits - logits.max(1, keepdims=True)
        log_p -= np.log(np.exp(log_p).sum(1, keepdims=True))
    worst = 0.0
    names = json.loads(meta.get("lockstep.class_names", "[]"))
    for row, one in zip(log_p, predicted):
        assert len(one["top"]) == len(row), (len(one["top"]), len(row))
        for guess in one["top"]:
            worst = max(worst, abs(row[guess["index"]] - np.log(guess["probability"])))
            assert not names or names[guess["index"]] == guess["class"], guess
    # Logits are compared up to a constant for each image: the program prints probabilities.
    print(f"{worst / max(scale, 1):.2e}")
    assert worst <= 1e-5 * max(scale, 1), (worst, scale)


{"shake": shake, "images": images, "same": same}[sys.argv[1]](*sys.argv[2:])
