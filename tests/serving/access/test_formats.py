"""docs/images.md row by row: every case that the page states is tried here."""

import struct
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from PIL import Image, ImageOps

from serving.access.decode import decode
from serving.access.decoder import Choice
from serving.access.encode import encode
from serving.access.page import PAGE, REFUSED, TAKEN, Case, images_page
from serving.access.probe import probe
from serving.config import AccessConfig
from tests.serving.access import pictures
from tests.serving.access.avif_files import DEEP, FRAME, Item, avif, sequence
from tests.serving.access.fidelity import DECODERS
from tests.serving.access.pictures import saved
from toolkit.core.errors import ToolkitError

LIMITS = AccessConfig()
KINDS = ("JPEG", "PNG", "WEBP", "GIF", "AVIF")
BLUE, RED, WHITE = (20, 60, 220), (255, 0, 0), (255, 255, 255)
FLAT = Image.new("RGB", (32, 16), BLUE)
END = b"\xff\xd9"
TRAIL = b"PK\3\4 <script>" * 50


def turned(kind: str) -> list[bytes]:
    return [
        saved(pictures.arrow(), kind, exif=pictures.with_orientation(n), **BEST[kind]) for n in range(1, 9)
    ]


BEST = {"JPEG": {"quality": 95, "subsampling": 0}, "PNG": {}, "WEBP": {"lossless": True}, "GIF": {},
        "AVIF": {"quality": 95, "subsampling": "4:4:4"}}  # fmt: skip


def upright(number: int) -> Image.Image:
    """The arrow as a viewer shows it who obeys that orientation."""
    with Image.open(pictures.BytesIO(turned("PNG")[number - 1])) as image:
        return ImageOps.exif_transpose(image)


def grey16() -> bytes:
    return pictures.png(2, 2, 16, 0, (b"\0" + b"\x80\x00" * 2) * 2)


def ycck() -> bytes:
    """A CMYK file of Pillow's with the transform of its Adobe segment set to 2."""
    data = saved(Image.new("CMYK", (16, 16), (0, 0, 0, 0)), "JPEG", quality=95)
    at = data.index(b"Adobe") + 11
    return data[:at] + b"\2" + data[at + 1 :]


def small_frames() -> list[tuple[bytes, object]]:
    """An 8x8 frame in blue at (12, 4) of a canvas of 32x16; the bare part is red, or clear."""
    frame = Image.new("P", (8, 8), 1)
    frame.putpalette([*RED, *BLUE])
    trials: list[tuple[bytes, object]] = []
    for options, colour in (({}, RED), ({"transparency": 0}, WHITE)):
        data = bytearray(saved(frame, "GIF", optimize=False, **options))
        data[6:10] = struct.pack("<HH", 32, 16)
        at = data.index(b"\x2c\0\0\0\0")
        data[at + 1 : at + 5] = struct.pack("<HH", 12, 4)
        wanted = Image.new("RGB", (32, 16), colour)
        wanted.paste(BLUE, (12, 4, 20, 12))
        trials.append((bytes(data), wanted))
    return trials


SHOWN: dict[str, Callable[[], list[tuple[bytes, object]]]] = {
    "JPEG: baseline or progressive": lambda: [
        *((saved(FLAT, "JPEG", progressive=way, **BEST["JPEG"]), BLUE) for way in (False, True)),
        (saved(FLAT, "JPEG", quality=95, keep_rgb=True), BLUE),
        (saved(FLAT, "JPEG", quality=95, subsampling="4:2:0"), BLUE),
    ],
    "several JPEGs in one file (MPO)": lambda: [
        (saved(FLAT, "MPO", save_all=True, append_images=[Image.new("RGB", FLAT.size, RED)], quality=95), BLUE)
    ],
    "PNG: interlaced or not": lambda: [
        (saved(FLAT, "PNG"), BLUE), (pictures.interlaced_png(32, 16, BLUE), BLUE), (pictures.interlaced_png(33, 17, BLUE), BLUE)
    ],
    "WebP: lossy, lossless": lambda: [(saved(FLAT, "WEBP", lossless=way), BLUE) for way in (False, True)],
    "GIF": lambda: [(saved(FLAT, "GIF", interlace=way), BLUE) for way in (0, 1)],
    "GIF whose first frame is smaller than its canvas": small_frames,
    "AVIF: one frame": lambda: [(saved(FLAT, "AVIF", **BEST["AVIF"]), BLUE)],
    "AVIF of 10 or 12 bits": lambda: [
        (DEEP["RGB, 10 bits"], (64, 128, 191)),
        (DEEP["RGB, 12 bits"], (64, 128, 191)),
        (DEEP["grey, 10 bits"], (127, 127, 127)),
        (DEEP["clear, 12 bits"], WHITE),
    ],
    "animated GIF, PNG, WebP or AVIF": lambda: [
        (saved(FLAT, kind, save_all=True, append_images=[Image.new("RGB", FLAT.size, RED)], **BEST[kind]), BLUE)
        for kind in KINDS[1:]
    ],
    "Exif orientation 1 to 8 in JPEG, PNG or WebP": lambda: [
        (data, upright(n)) for kind in KINDS[:3] for n, data in enumerate(turned(kind), 1)
    ],
    "irot and imir in AVIF": lambda: [(data, upright(n)) for n, data in enumerate(turned("AVIF"), 1)],
    "transparency, colour keys": lambda: [
        (saved(Image.new("RGBA", (16, 16), (*RED, 0)), "PNG"), WHITE),
        (saved(Image.new("RGBA", (16, 16), (*RED, 0)), "WEBP", lossless=True, exact=True), WHITE),
        (saved(Image.new("RGBA", (16, 16), (*RED, 0)), "WEBP"), WHITE),
        (saved(Image.new("RGBA", (16, 16), (*RED, 0)), "AVIF"), WHITE),
        (saved(Image.new("RGB", (16, 16), RED), "PNG", transparency=RED), WHITE),
        (saved(Image.new("P", (16, 16), 1), "GIF", transparency=1), WHITE),
    ],
    "16-bit grey or RGB, with or without alpha": lambda: [
        (grey16(), (128, 128, 128)),
        (pictures.png(2, 2, 16, 4, (b"\0" + b"\x80\x00\xff\xff" * 2) * 2), (128, 128, 128)),
        (pictures.png(2, 2, 16, 6, (b"\0" + b"\x40\x00\x80\x00\xc0\x00\0\0" * 2) * 2), WHITE),
        (pictures.png(2, 2, 16, 2, (b"\0" + b"\x40\x00\x80\x00\xc0\x00" * 2) * 2), (64, 128, 192)),
    ],
    "1-bit, palette and grey": lambda: [
        (saved(Image.new("1", (9, 9), 1), "PNG"), WHITE),
        (saved(FLAT.quantize(4), "PNG"), BLUE),
        (saved(Image.new("L", (16, 16), 77), "JPEG"), (77, 77, 77)),
        (saved(Image.new("L", (16, 16), 77), "AVIF", quality=95), (77, 77, 77)),
    ],
    "CMYK and YCCK JPEG": lambda: [
        (saved(Image.new("CMYK", (16, 16), (0, 255, 255, 0)), "JPEG", quality=95), RED),
        (ycck(), pictures.plainly(ycck())),
    ],
    "ICC profile, a PNG's gamma": lambda: [
        *((saved(FLAT, kind, icc_profile=bytes(500), **BEST[kind]), BLUE) for kind in KINDS if kind != "GIF"),
        (saved(Image.new("CMYK", (16, 16), (0, 255, 255, 0)), "JPEG", quality=95, icc_profile=bytes(500)), RED),
        (pictures.png(2, 2, 8, 2, (b"\0" + bytes(BLUE) * 2) * 2, pictures.chunk(b"gAMA", struct.pack(">I", 100_000))), BLUE),
    ],
    "metadata and bytes after the picture": lambda: [
        (saved(FLAT, kind, **BEST[kind]) + TRAIL, BLUE) for kind in KINDS if kind != "AVIF"
    ] + [(saved(FLAT, "AVIF", **BEST["AVIF"]) + struct.pack(">I", 8 + len(TRAIL)) + b"skip" + TRAIL, BLUE)],
    "side ratio of 200": lambda: [(saved(Image.new("RGB", (2000, 10), BLUE), "PNG"), BLUE)],
}  # fmt: skip


@cache
def halves() -> list[bytes]:
    return [data[: len(data) // 2] for data in (saved(pictures.photo(), kind) for kind in KINDS)]


def forged_ends() -> list[bytes]:
    """Half the bytes of several kinds of JPEG, then the end marker of a whole one."""
    kinds: list[dict[str, object]] = [
        {},
        {"progressive": True},
        {"restart_marker_rows": 2},
        {"optimize": True},
    ]
    files = [saved(pictures.photo(), "JPEG", **kind) for kind in kinds]
    return [data[: len(data) * part // 100] + END for data in files for part in (10, 50, 60)]


def odd_coding(marker: int) -> bytes:
    data = saved(FLAT, "JPEG")
    at = data.index(b"\xff\xc0")
    return data[: at + 1] + bytes([marker]) + data[at + 2 :]


def twelve_bits() -> bytes:
    data = bytearray(saved(FLAT, "JPEG"))
    data[data.index(b"\xff\xc0") + 4] = 12
    return bytes(data)


REFUSALS: dict[str, Callable[[], list[bytes]]] = {
    "more than `max_image_bytes`": lambda: [saved(FLAT, "GIF") + bytes(LIMITS.max_image_bytes)],
    "more than `max_image_pixels`": lambda: [
        pictures.webp_bomb(),
        pictures.png_bomb(),
        pictures.gif_canvas(65535, 65535),
        avif(Item(properties=(struct.pack(">I4sIII", 20, b"ispe", 0, 16384, 16384),), content=sequence(16384, 16384) + FRAME)),
        saved(Image.new("L", (9000, 9000)), "JPEG"),
    ],
    "side ratio over `max_side_ratio` (200)": lambda: [saved(Image.new("L", (2010, 10)), kind) for kind in KINDS[:2]],
    "a side of 0": lambda: [
        pictures.png(0, 5, 8, 0, b""),
        pictures.resized_header(saved(pictures.arrow(), "JPEG"), 5, 0),
        avif(Item(properties=(struct.pack(">I4sIII", 20, b"ispe", 0, 0, 64),))),
    ],
    "JPEG of more than `max_sos_markers` scans": lambda: [pictures.scan_bomb()],
    "JPEG header that claims more than its bytes can hold": lambda: [
        pictures.resized_header(saved(pictures.photo(), "JPEG"), 7900, 7900)
    ],
    "AVIF whose AV1 stream or grid has another size than its box": lambda: [
        avif(Item(content=sequence(8000, 8000) + FRAME)), avif(Item(content=sequence(8, 8) + FRAME)),
    ],
    "AVIF of many frames in one picture": lambda: [avif(Item(content=sequence(64, 64) + FRAME * 2))],
    "millions of empty chunks, comments, blocks or boxes": lambda: [
        pictures.png(1, 1, 8, 0, b"\0\0", pictures.chunk(b"tEXt", b"") * 500_000),
        b"\xff\xd8" + b"\xff\xfe\0\x02" * 1_000_000 + saved(pictures.arrow(), "JPEG")[2:],
        avif(Item(), more=struct.pack(">I4s", 8, b"free") * 1_000_000),
    ],
    "cut off, in any format": halves,
    "cut off behind a forged end marker (JPEG)": forged_ends,
    "damaged header or stream": lambda: [
        data[:at] + bytes(200) + data[at + 200 :]
        for kind, at in (("PNG", 50_000), ("GIF", 10), ("WEBP", 20), ("JPEG", 160), ("AVIF", 120))
        for data in [saved(pictures.photo(), kind)]
    ],
    "JPEG with arithmetic or lossless coding, or of 12 bits": lambda: [
        *(odd_coding(n) for n in (0xC3, 0xC9, 0xCA, 0xCB)), twelve_bits(),
    ],
    "EPS, SVG, PDF or PSD": lambda: [
        saved(FLAT, "EPS"), saved(FLAT, "PDF"), b'<svg xmlns="http://www.w3.org/2000/svg"/>', b"8BPS\0\1" + bytes(60),
    ],
    "TIFF, BMP, ICO, PPM, TGA, JPEG 2000 or HEIC": lambda: [
        *(saved(FLAT, kind) for kind in ("TIFF", "BMP", "ICO", "PPM", "TGA", "JPEG2000")),
        avif(Item(kind=b"hvc1"), brand=b"heic"),
    ],
    "a web page, a film, nothing at all": lambda: [
        b"<!DOCTYPE html><html>404</html>", b"\0\0\0\x18ftypisom\0\0\2\0isommp42" + bytes(500), b"",
    ],
}  # fmt: skip


def test_the_page_is_up_to_date() -> None:
    """Run `python -m serving.access.page` after a change of the tables."""
    assert PAGE.read_text(encoding="utf-8") == images_page()


def test_every_row_is_tried() -> None:
    """A row without a trial would be a claim."""
    assert [case.name for case in TAKEN] == list(SHOWN)
    assert [case.name for case in REFUSED] == list(REFUSALS)


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("case", TAKEN, ids=lambda case: case.name)
def test_taken(case: Case, decoder: Choice) -> None:
    """The picture that is handed on is the one that a viewer shows, and carries nothing else."""
    for data, expected in SHOWN[case.name]():
        header = probe(data, LIMITS)
        picture = decode(data, header, header.size, decoder)
        wanted = expected if isinstance(expected, Image.Image) else Image.new("RGB", header.size, expected)

        assert (picture.mode, picture.size) == ("RGB", wanted.size)
        gap = np.abs(np.asarray(picture, dtype=int) - np.asarray(wanted.convert("RGB"), dtype=int))
        assert np.median(gap) <= 2, header.format
        assert np.mean(gap) <= 6, header.format
        assert TRAIL[:10] not in encode(picture, "png")


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_refused(case: Case, decoder: Choice) -> None:
    """With exactly the code that the page gives, by header or decoder."""
    for number, data in enumerate(REFUSALS[case.name]()):
        with pytest.raises(ToolkitError) as caught:
            decode(data, probe(data, LIMITS), (28, 28), decoder)
        assert caught.value.code.code == case.code, (number, caught.value.message)
