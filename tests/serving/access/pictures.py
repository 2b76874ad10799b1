"""Images for the tests, good and bad, all made here."""

import struct
import zlib
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

PHOTOS = Path(__file__).parents[3] / "workloads" / "assets" / "photos"


def photo(width: int = 640, height: int = 427) -> Image.Image:
    """A real photo; larger sizes get fine texture on top, so that they are not merely smooth."""
    with Image.open(PHOTOS / "china.jpg") as image:
        picture = image.convert("RGB").resize((width, height), Image.Resampling.BICUBIC)
    if width > 1000:
        grain = Image.effect_noise((width // 2, height // 2), 40).resize((width, height)).convert("RGB")
        picture = Image.blend(picture, grain, 0.15)
    return picture


def page(width: int, height: int, font: int = 20) -> Image.Image:
    """Black lines of text on white, `font` pixels high."""
    picture = Image.new("L", (width, height), 255)
    draw = ImageDraw.Draw(picture)
    line = "The quick brown fox jumps over the lazy dog 0123456789 " * (width // 200)
    for top in range(20, height - font * 3 // 2, font * 13 // 10):
        draw.text((20, top), line, fill=0, font_size=font)
    return picture.convert("RGB")


def zone_plate(side: int = 2048) -> Image.Image:
    """Rings that get finer up to the limit of the pixels: what every filter shows its faults on."""
    y, x = np.mgrid[-side // 2 : side // 2, -side // 2 : side // 2]
    rings = 127.5 + 127.5 * np.cos(np.pi * (x * x + y * y) / (2.0 * side))
    return Image.fromarray(rings.astype(np.uint8)).convert("RGB")


def arrow() -> Image.Image:
    """60x40, different in each corner: every turn of it can be told apart."""
    picture = Image.new("RGB", (60, 40), (40, 90, 160))
    draw = ImageDraw.Draw(picture)
    draw.rectangle((0, 0, 29, 19), fill=(230, 30, 30))
    draw.rectangle((30, 0, 59, 19), fill=(30, 200, 30))
    draw.rectangle((0, 20, 14, 39), fill=(240, 240, 240))
    return picture


def saved(picture: Image.Image, kind: str, **options: object) -> bytes:
    out = BytesIO()
    picture.save(out, kind, **options)
    return out.getvalue()


def with_orientation(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def chunk(kind: bytes, body: bytes) -> bytes:
    """One PNG chunk."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width: int, height: int, depth: int, colour: int, rows: bytes, *extra: bytes) -> bytes:
    """A PNG of raw rows (each with its filter byte); colour: 0 grey, 2 RGB, 4 grey+alpha."""
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    body = b"".join(extra) + chunk(b"IDAT", zlib.compress(rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + body + chunk(b"IEND", b"")


def interlaced_png(width: int, height: int, colour: tuple[int, int, int]) -> bytes:
    """One colour in Adam7's seven passes."""
    starts_and_steps = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))  # fmt: skip
    rows = b""
    for left, top, right, down in starts_and_steps:
        wide, high = len(range(left, width, right)), len(range(top, height, down))
        rows += (b"\0" + bytes(colour) * wide) * high
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 1)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def png_bomb(side: int = 13_000) -> bytes:
    """Black, side x side RGB, in about 500 kB."""
    packer = zlib.compressobj(1)
    block = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    again = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    stream = block + again * (side * (side * 3 + 1) >> 20)
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", stream) + chunk(b"IEND", b"")


def webp_bomb() -> bytes:
    """34 bytes that claim 16383x16383 pixels."""
    packed = 16382 | 16382 << 14
    body = b"\x2f" + struct.pack("<I", packed) + bytes(9)
    return b"RIFF" + struct.pack("<I", 26) + b"WEBPVP8L" + struct.pack("<I", len(body)) + body


def scan_bomb(scans: int = 2000) -> bytes:
    """A small progressive JPEG whose last scan comes again and again."""
    data = saved(Image.new("RGB", (4000, 3000), (90, 120, 30)), "JPEG", progressive=True)
    last = data.rindex(b"\xff\xda")
    return data[:last] + data[last:-2] * scans + data[-2:]


def resized_header(data: bytes, width: int, height: int) -> bytes:
    """The JPEG with another size written into its frame header."""
    at = data.index(b"\xff\xc0")
    return data[: at + 5] + struct.pack(">HH", height, width) + data[at + 9 :]


def gif_canvas(width: int, height: int) -> bytes:
    """A GIF whose canvas is huge and whose frame is one pixel."""
    small = saved(Image.new("P", (1, 1)), "GIF")
    return small[:6] + struct.pack("<HH", width, height) + small[10:]


def plainly(data: bytes) -> Image.Image:
    """Pillow's own plain decode."""
    with Image.open(BytesIO(data)) as image:
        return image.convert("RGB")


def packed_metadata(kind: bytes, unpacked_mb: int = 100) -> bytes:
    """A zTXt or iCCP chunk of about a thousandth of what it unpacks to."""
    packer = zlib.compressobj(1)
    body = b"".join(packer.compress(bytes(1 << 20)) for _ in range(unpacked_mb)) + packer.flush()
    return chunk(kind, b"name\0\0" + body)


def peak_mb() -> float:
    """The most memory this process has held since fresh_peak_mb."""
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024


def fresh_peak_mb() -> float:
    """Sets the peak back to what is held now, and tells it."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak_mb()
