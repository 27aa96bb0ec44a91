"""Writes pictures of many kinds, and beside each what Pillow reads: NAME.TYPE and NAME.TYPE.ppm."""
import sys

from PIL import Image, ImageOps

folder = sys.argv[1]


def expect(path):
    with Image.open(path) as image:
        upright = ImageOps.exif_transpose(image)
        upright.convert("RGB").save(path + ".ppm")


def save(image, name, **options):
    path = folder + "/" + name
    image.save(path, **options)
    expect(path)


def exif(orientation):
    tags = Image.Exif()
    tags[0x0112] = orientation
    tags[0x010E] = "a description that stands before the orientation"
    return tags


colours = Image.new("RGB", (31, 21))
colours.putdata([(x * 8, y * 12, (x * y * 5) % 256) for y in range(21) for x in range(31)])
grey = colours.convert("L")
alpha = colours.convert("RGBA")
alpha.putalpha(grey.point(lambda v: 255 - v))
palette = colours.convert("P", palette=Image.Palette.ADAPTIVE, colors=40)

for o in range(1, 9):
    save(colours, "colour%d.jpg" % o, quality=95, subsampling=0, exif=exif(o))
    save(grey, "grey%d.jpg" % o, quality=95, exif=exif(o))
    save(colours, "colour%d.png" % o, exif=exif(o))
    save(grey, "grey%d.png" % o, exif=exif(o))
save(colours.convert("CMYK"), "inks.jpg", quality=95, exif=exif(6))  # with Adobe's marker: inverted
save(grey, "progressive.jpg", progressive=True)
save(alpha, "alpha.png")
save(grey.convert("LA"), "grey-alpha.png")
save(palette, "palette.png")
save(palette, "transparent.png", transparency=3)
save(palette, "half-transparent.png", transparency=bytes(range(0, 240, 6)))
save(colours, "key.png", transparency=(0, 0, 0))
save(grey.convert("1"), "bit.png")
save(colours.convert("P", palette=Image.Palette.ADAPTIVE, colors=4), "two-bits.png", bits=2)

# Kinds that a build may lack; the test then skips them.
save(colours, "lossy.webp", quality=90)
save(colours, "lossless.webp", lossless=True)
save(alpha, "alpha.webp", lossless=True, exact=True)
for o in (3, 6):
    save(colours, "turned%d.webp" % o, lossless=True, exif=exif(o))
save(palette, "palette.gif")
save(palette, "rows.gif", interlace=0)
save(palette, "transparent.gif", transparency=5)
save(grey, "grey.gif")
save(palette, "frames.gif", save_all=True, append_images=[palette.rotate(90), grey])
with open(folder + "/palette.gif", "rb") as f:
    data = bytearray(f.read())
frame = 13 + 3 * (2 << (data[10] & 7))  # behind the header and the common colours
assert data[frame] == ord(",")
data[6:10] = (40).to_bytes(2, "little") + (30).to_bytes(2, "little")  # a larger canvas
data[frame + 1 : frame + 5] = (7).to_bytes(2, "little") + (4).to_bytes(2, "little")  # the frame's place in it
with open(folder + "/placed.gif", "wb") as f:
    f.write(data)
expect(folder + "/placed.gif")

# What Pillow does not write: 16 bits a channel and interlaced rows. The bytes are made here; Pillow reads the former by
# dropping the low byte.
import struct
import zlib


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(name, width, height, bits, kind, interlaced, rows):
    with open(folder + "/" + name, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n")
        f.write(chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, interlaced)))
        f.write(chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


deep = b"".join(b"\0" + b"".join(struct.pack(">HHH", x * 2000, y * 3000, (x * y * 77) % 65536) for x in range(31))
                for y in range(21))
png("deep.png", 31, 21, 16, 2, 0, deep)
expect(folder + "/deep.png")
passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
rows = b""
for x0, y0, dx, dy in passes:
    for y in range(y0, 21, dy):
        rows += b"\0" + b"".join(bytes(colours.getpixel((x, y))) for x in range(x0, 31, dx))
png("interlaced.png", 31, 21, 8, 2, 1, rows)
expect(folder + "/interlaced.png")
