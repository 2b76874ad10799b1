"""Damaged images by the thousand: `python -m tests.serving.access.fuzz FIRST COUNT` prints one JSON object.

File n is the same in every run. A process of its own, so that a crash, a hang or a megabyte can be told.
"""

import itertools
import json
import random
import struct
import sys
import time
from collections.abc import Callable

from PIL import Image

from serving.access.decode import decode
from serving.access.probe import probe
from serving.config import AccessConfig
from tests.serving.access import pictures
from tests.serving.access.avif_files import Item, avif, grid, made_of, size
from tests.serving.access.pictures import saved
from toolkit.core.errors import ToolkitError

LIMITS = AccessConfig(max_image_pixels=4_000_000)
LARGEST = 65_536  # bytes of a file
TARGET = (56, 28)
WILD = (
    0,
    1,
    2,
    7,
    0x7F,
    0x80,
    0xFF,
    0x100,
    0x7FFF,
    0x8000,
    0xFFFE,
    0xFFFF,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
)
STRUCTURE_BYTES = 700  # headers, tables and boxes lie at the front of all five formats


def seeds() -> list[bytes]:
    """Whole files of every format, with what the format can hold."""
    photo, clear = pictures.photo(96, 64), pictures.photo(64, 48).convert("RGBA")
    clear.putalpha(Image.linear_gradient("L").resize(clear.size))
    turned = pictures.with_orientation(6)
    film = {"save_all": True, "append_images": [photo.rotate(90).resize(photo.size)]}
    tiles = [Item(), Item()]
    whole = Item(kind=b"grid", properties=(size(128, 64),), content=grid(1, 2, 128, 64))
    return [
        saved(photo, "JPEG", exif=turned),
        saved(photo, "JPEG", progressive=True),
        saved(photo, "JPEG", restart_marker_blocks=2, icc_profile=bytes(300)),
        saved(photo.convert("CMYK"), "JPEG"),
        saved(photo.convert("L"), "JPEG", optimize=True),
        saved(photo, "PNG", exif=turned),
        saved(clear, "PNG"),
        saved(photo.quantize(16), "PNG", transparency=3),
        saved(photo, "PNG", **film),
        pictures.png(40, 30, 16, 0, (b"\0" + bytes(range(80))) * 30, pictures.chunk(b"tRNS", b"\x10\x05")),
        saved(photo, "WEBP", exif=turned),
        saved(clear, "WEBP"),
        saved(clear, "WEBP", lossless=True),
        saved(photo, "WEBP", **film),
        saved(photo, "GIF"),
        saved(photo, "GIF", **film, comment=b"a comment", transparency=2),
        saved(photo, "AVIF", exif=turned),
        saved(clear, "AVIF"),
        saved(photo, "AVIF", **film),
        avif(whole, *tiles, references=made_of(1, [2, 3])),
    ]


def _flip(stream: random.Random, data: bytearray) -> None:
    for _ in range(stream.choice((1, 1, 3, 20))):
        data[stream.randrange(len(data))] ^= 1 << stream.randrange(8)


def _front(stream: random.Random, data: bytearray) -> None:
    for _ in range(stream.choice((1, 2, 4))):
        data[stream.randrange(min(len(data), STRUCTURE_BYTES))] = stream.choice(
            (0, 1, 255, stream.randrange(256))
        )


def _length(stream: random.Random, data: bytearray) -> None:
    kind = stream.choice((">B", ">H", "<H", ">I", "<I", ">I"))
    width = struct.calcsize(kind)
    at = stream.randrange(max(1, min(len(data), stream.choice((64, STRUCTURE_BYTES, len(data)))) - width))
    value = stream.choice((*WILD, len(data), len(data) - at)) & (1 << 8 * width) - 1
    data[at : at + width] = struct.pack(kind, value)


def _cut(stream: random.Random, data: bytearray) -> None:
    del data[stream.randrange(len(data)) :]
    if stream.random() < 0.4:
        data += stream.choice((b"\xff\xd9", b"\0\0\0\0IEND\xaeB`\x82", b"\0;", bytes(64)))


def _drop(stream: random.Random, data: bytearray) -> None:
    at = stream.randrange(len(data))
    del data[at : at + stream.choice((1, 2, 8, 100))]


def _repeat(stream: random.Random, data: bytearray) -> None:
    at, length = stream.randrange(len(data)), stream.choice((1, 4, 20, 300))
    data[at:at] = data[at : at + length] * stream.choice((1, 2, 50))


def _splice(stream: random.Random, data: bytearray) -> None:
    other = stream.choice(stream.seeds)  # type: ignore[attr-defined]
    at, begin = stream.randrange(len(data)), stream.randrange(len(other))
    data[at : at + stream.choice((0, 50, len(data)))] = other[
        begin : begin + stream.choice((16, 400, len(other)))
    ]


def _parts(data: bytes) -> list[bytes]:
    """A file's parts at its own joints: PNG and WebP chunks, boxes (also in meta), JPEG segments; else thirds."""
    if data[:4] == b"\x89PNG":
        marks = [
            data.find(kind) - 4 for kind in (b"PLTE", b"tRNS", b"IDAT", b"IEND", b"acTL", b"fcTL", b"eXIf")
        ]
    elif data[4:8] == b"ftyp":
        kinds = (
            b"meta",
            b"pitm",
            b"iloc",
            b"iinf",
            b"infe",
            b"iprp",
            b"ipco",
            b"ipma",
            b"ispe",
            b"av1C",
            b"mdat",
        )
        marks = [data.find(kind) - 4 for kind in kinds]
    elif data[:4] == b"RIFF":
        marks = [data.find(kind) for kind in (b"VP8", b"ALPH", b"ANIM", b"ANMF", b"EXIF")]
    elif data[:2] == b"\xff\xd8":
        marks = [at for at in range(2, len(data) - 1) if data[at] == 0xFF and data[at + 1] >= 0xC0][:40]
    else:
        marks = [13, len(data) // 3, len(data) // 2]
    edges = sorted({0, len(data), *(mark for mark in marks if mark > 0)})
    return [data[begin:end] for begin, end in itertools.pairwise(edges)]


def _shuffle(stream: random.Random, data: bytearray) -> None:
    """A part twice, gone, or in another's place."""
    parts = _parts(bytes(data))
    one, other = stream.randrange(len(parts)), stream.randrange(len(parts))
    change = stream.randrange(3)
    if change == 0:
        parts.insert(other, parts[one])
    elif change == 1:
        parts.pop(one)
    else:
        parts[one], parts[other] = parts[other], parts[one]
    data[:] = b"".join(parts)


CHANGES: tuple[Callable[[random.Random, bytearray], None], ...] = (
    _flip, _front, _front, _length, _length, _length, _cut, _drop, _repeat, _splice, _shuffle, _shuffle,
)  # fmt: skip


def _with_checksums(data: bytes) -> bytes:
    """The PNG with every checksum made right, or a mutation would hardly pass the first one."""
    out, at = data[:8], 8
    while at + 12 <= len(data):
        (length,) = struct.unpack_from(">I", data, at)
        if at + 12 + length > len(data):
            break
        out += pictures.chunk(data[at + 4 : at + 8], data[at + 8 : at + 8 + length])
        at += 12 + length
    return out + data[at:]


def damaged(number: int, files: list[bytes]) -> bytes:
    """File `number`."""
    stream = random.Random(number)
    stream.seeds = files  # type: ignore[attr-defined]
    data = bytearray(files[number % len(files)])
    for _ in range(stream.choice((1, 1, 2, 3))):
        if data:
            stream.choice(CHANGES)(stream, data)
    changed = bytes(data[:LARGEST])
    return _with_checksums(changed) if changed[:4] == b"\x89PNG" and stream.random() < 0.8 else changed


def run(first: int, count: int) -> dict[str, object]:
    """Files first to first + count; what is not a picture or a typed error is in `wrong`."""
    files = seeds()
    for data in files[:-1]:  # the last one has a frame of zeros
        decode(data, probe(data, LIMITS), TARGET)
    began_mb, taken, wrong, slowest = pictures.peak_mb(), 0, list[str](), (0.0, -1)
    for number in range(first, first + count):
        data = damaged(number, files)
        started = time.process_time()
        try:
            picture = decode(data, probe(data, LIMITS), TARGET)
            taken += 1
            if (picture.mode, picture.size) != ("RGB", TARGET):
                wrong.append(f"file {number}: {picture.mode} {picture.size}")
        except ToolkitError as error:
            if error.code.code not in ("image_invalid", "image_too_large"):
                wrong.append(f"file {number}: {error.code.code}")
        except BaseException as error:  # what the test is for
            wrong.append(f"file {number}: {type(error).__name__}: {error}")
        slowest = max(slowest, (time.process_time() - started, number))
    return {
        "files": count,
        "taken": taken,
        "slowest_s": round(slowest[0], 4),
        "slowest_file": slowest[1],
        "grown_mb": round(pictures.peak_mb() - began_mb, 1),
        "wrong": wrong[:20],
    }


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]), int(sys.argv[2]))))
