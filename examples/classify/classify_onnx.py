"""Classifies an image with a file of `lockstep export`, by ONNX Runtime: classify_onnx.py MODEL.onnx IMAGE

The file's metadata say how an image is prepared. Needs onnxruntime, numpy and Pillow."""
import json
import sys

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
meta = session.get_modelmeta().custom_metadata_map
channels, height, width = map(int, meta["lockstep.input"].split("x"))

image = ImageOps.exif_transpose(Image.open(sys.argv[2])).convert("RGB")
w, h = image.size
if meta["lockstep.eval_resize"] != "none":  # the shorter side to this
    scale = int(meta["lockstep.eval_resize"])
    w, h = w * scale // min(image.size), h * scale // min(image.size)
else:  # cover the input
    cover = max(width / w, height / h)
    w, h = round(w * cover), round(h * cover)
image = image.resize((w, h), Image.BILINEAR)
crop = meta["lockstep.eval_crop"]
crop_h, crop_w = (height, width) if crop == "none" else map(int, crop.split("x"))
left, top = round((w - crop_w) / 2), round((h - crop_h) / 2)
image = image.crop((left, top, left + crop_w, top + crop_h)).resize((width, height), Image.BILINEAR)
pixels = np.asarray(image.convert("RGB" if channels == 3 else "L"), np.float32).reshape(height, width, channels)
mean, deviation = (np.array(json.loads(meta[key]), np.float32) for key in ("lockstep.mean", "lockstep.deviation"))
batch = ((pixels / 255 - mean) / deviation).transpose(2, 0, 1)[None]

output = session.get_outputs()[0].name
scores = session.run([output], {"images": batch})[0][0]
if output == "logits":
    scores = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
names = json.loads(meta.get("lockstep.class_names", "[]"))
for i in np.argsort(-scores)[:5]:
    print(f"  {names[i] if i < len(names) else f'class {i}':24} {100 * scores[i]:6.2f}%")
