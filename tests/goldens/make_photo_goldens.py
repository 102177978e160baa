#!/usr/bin/env python3
"""Writes photos.inc: WebP files and the pixels that Pillow reads from them. Usage: make_photo_goldens.py > photos.inc"""

import io

from PIL import Image, ImageOps

COLOURS = [(x * 36, y * 50, 255 - x * 20 - y * 10) for y in range(5) for x in range(7)]
PICTURE = Image.new("RGB", (7, 5))
PICTURE.putdata(COLOURS)
GLASS = Image.new("RGBA", (7, 5))
GLASS.putdata([(*colour, i * 7) for i, colour in enumerate(COLOURS)])
TURNED = Image.Exif()
TURNED[0x112] = 6


def golden(name, picture, **options):
    file = io.BytesIO()
    picture.save(file, "WEBP", **options)
    read = ImageOps.exif_transpose(Image.open(file)).convert("RGBA")
    raw = read.tobytes()
    # As 8 bits over white, rounded.
    pixels = bytes((c * raw[i + 3] + 255 * (255 - raw[i + 3]) + 127) // 255
                   for i in range(0, len(raw), 4) for c in raw[i:i + 3])
    print(f'{{"{name}", {read.height}, {read.width},')
    for text in (file.getvalue().hex(), pixels.hex()):
        lines = [text[i:i + 100] for i in range(0, len(text), 100)]
        print("\n".join(f'    "{line}"' for line in lines) + ("," if text == file.getvalue().hex() else "},"))


print("// Made by make_photo_goldens.py; do not edit. Rows: name, height, width, file, pixels.")
golden("lossy", PICTURE, quality=80)
golden("lossless", PICTURE, lossless=True)
golden("transparent", GLASS, lossless=True)
golden("turned", PICTURE, quality=80, exif=TURNED)
golden("animation", PICTURE, save_all=True, append_images=[PICTURE.rotate(180)], lossless=True)
