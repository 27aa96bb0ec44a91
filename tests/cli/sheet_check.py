"""Reads contact sheets that lockstep wrote as HTML. Standard library alone, except `png`, which needs Pillow.

    sheet_check.py list PAGE             sample and class of each picture, one a line
    sheet_check.py trained PAGE EVENTS   the first eight pictures are, byte for byte, those that a run saw: EVENTS is the
                                         event file of TensorBoard
    sheet_check.py crops PAGE BIN...     each picture is a crop, mirrored or not, of its record in CIFAR-10's files, with
                                         black around it (Pillow)
    sheet_check.py png PAGE SHEET.png    the PNG has the same pictures as the page, enlarged (Pillow)
"""
import base64
import html
import io
import re
import sys


def pictures(page):
    text = open(page, encoding="utf-8").read()
    found = re.findall(
        r'alt="sample (\d+)" src="data:image/png;base64,([^"]*)"><figcaption><strong>(.*?)</strong><span>sample (\d+)<', text
    )
    assert found and all(a == d for a, _, _, d in found)
    return [(int(n), html.unescape(name), base64.b64decode(data)) for n, data, name, _ in found]


def pixels(png):
    from PIL import Image

    image = Image.open(io.BytesIO(png)).convert("RGB")
    return image.width, image.height, image.tobytes()


def crops(page, files):
    data = b"".join(open(f, "rb").read() for f in files)
    moved = 0
    for number, _, png in pictures(page):
        width, height, shown = pixels(png)
        assert (width, height) == (32, 32)
        record = data[3073 * number + 1 : 3073 * (number + 1)]

        def at(y, x):
            if not (0 <= y < 32 and 0 <= x < 32):
                return b"\0\0\0"
            return bytes(record[1024 * c + 32 * y + x] for c in range(3))

        def made(dy, dx, flip):
            rows = [[at(y + dy, x + dx) for x in range(32)] for y in range(32)]
            return b"".join(b"".join(reversed(r) if flip else r) for r in rows)

        places = [(y, x, f) for y in range(-4, 5) for x in range(-4, 5) for f in (0, 1)]
        hits = [p for p in places if made(*p) == shown]
        assert len(hits) == 1, f"sample {number}: {len(hits)} crops of it are this picture"
        moved += hits[0] != (0, 0, 0)
    assert moved > 0, "nothing was cropped"


def same_png(page, sheet):
    from PIL import Image

    image = Image.open(sheet).convert("RGB")
    for number, _, png in pictures(page):
        width, height, shown = pixels(png)
        one = Image.frombytes("RGB", (width, height), shown)
        for zoom in range(1, 9):
            if find(image, one.resize((zoom * width, zoom * height), Image.NEAREST)):
                break
        else:
            raise AssertionError(f"sample {number} is not on {sheet}")


def find(image, part):
    raw, row = image.tobytes(), part.crop((0, 0, part.width, 1)).tobytes()
    at = raw.find(row)
    while at >= 0:
        x, y = at // 3 % image.width, at // 3 // image.width
        if at % 3 == 0 and image.crop((x, y, x + part.width, y + part.height)).tobytes() == part.tobytes():
            return True
        at = raw.find(row, at + 1)
    return False


what, page, rest = sys.argv[1], sys.argv[2], sys.argv[3:]
if what == "list":
    for number, name, _ in pictures(page):
        print(number, name)
elif what == "trained":
    events = open(rest[0], "rb").read()
    for number, _, png in pictures(page)[:8]:
        assert png in events, f"sample {number} is not what the run saw"
elif what == "crops":
    crops(page, rest)
else:
    same_png(page, rest[0])
