"""Files in which prepared pixels could travel: bytes and CPU time of each, here and on a leg, without any engine."""

import random
import struct
import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
import orjson
import pybase64
from PIL import Image

from serving.access.encode import encode
from serving.access.grids import QwenGrid
from tests.serving.access import pictures

ROUNDS = 5
GIGABIT = 1e9 / 8


@dataclass(frozen=True)
class Figures:
    """Of one picture in one file format. Seconds of CPU: encode_s and base64 here, leg_s on each leg (JSON, base64, pixels)."""

    size_bytes: int
    encode_s: float
    base64_s: float
    leg_s: float
    exact: bool

    @property
    def cpu_s(self) -> float:
        """Here and on both legs."""
        return self.encode_s + self.base64_s + 2 * self.leg_s

    @property
    def path_s(self) -> float:
        """What stands between the pixels here and the pixels on prefill, at 1 Gbit/s: both legs' bytes pass the wire."""
        return self.encode_s + self.base64_s + 2 * self.size_bytes * 4 / 3 / GIGABIT + self.leg_s


def _saved(kind: str, **options: Any) -> Callable[[Image.Image], bytes]:
    return lambda image: pictures.saved(image, kind, **options)


def _stored(image: Image.Image) -> bytes:
    return _png(image, 0, np.zeros((image.height, 1), np.uint8), np.asarray(image).reshape(image.height, -1))


def _up(image: Image.Image) -> bytes:
    """Each row as its difference from the one above, which Pillow would have found by trying five filters a row."""
    rows = np.asarray(image).reshape(image.height, -1)
    gaps = np.concatenate([rows[:1], rows[1:] - rows[:-1]])
    return _png(image, 1, np.full((image.height, 1), 2, np.uint8), gaps)


def _png(image: Image.Image, level: int, filters: np.ndarray, rows: np.ndarray) -> bytes:
    packed = zlib.compress(np.concatenate([filters, rows], axis=1), level)
    head = struct.pack(">IIBBBBB", *image.size, 8, 2, 0, 0, 0)
    parts = pictures.chunk(b"IHDR", head), pictures.chunk(b"IDAT", packed), pictures.chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


WAYS: dict[str, Callable[[Image.Image], bytes]] = {
    "`ppm`": lambda image: encode(image, "ppm"),
    "`png` (level 1)": lambda image: encode(image, "png"),
    "`webp` (lossless, method 0)": lambda image: encode(image, "webp"),
    "`jpeg` (q95 4:4:4)": lambda image: encode(image, "jpeg"),
    "BMP": _saved("BMP"),
    "TIFF, uncompressed": _saved("TIFF"),
    "PNG, stored, no filter": _stored,
    "PNG, Pillow's level 0": _saved("PNG", compress_level=0),
    "PNG, level 1, run lengths": _saved("PNG", compress_level=1, compress_type=zlib.Z_RLE),
    "PNG, level 1, Huffman": _saved("PNG", compress_level=1, compress_type=zlib.Z_HUFFMAN_ONLY),
    "PNG, level 1, filter Up alone": _up,
    "WebP, lossless, method 0, quality 20": _saved("WEBP", lossless=True, quality=20, method=0),
}


def prepared(kind: str, max_pixels: int) -> Image.Image:
    """A photo, a text page or a zone plate as the grid of that bound wants it."""
    source = {
        "photo": lambda: pictures.photo(4000, 3000),
        "text page": lambda: pictures.page(2480, 3508, 42),
        "zone plate": pictures.zone_plate,
    }[kind]()
    target = QwenGrid("qwen", 28, 56 * 56, max_pixels).target_size(*source.size)
    return source.resize(target, Image.Resampling.BICUBIC)


def compare(image: Image.Image) -> dict[str, Figures]:
    """Every way on one picture: the least CPU time of interleaved rounds."""
    files = {way: make(image) for way, make in WAYS.items()}
    texts = {way: pybase64.b64encode_as_string(file) for way, file in files.items()}
    bodies = {way: orjson.dumps({"url": "data:image/any;base64," + text}) for way, text in texts.items()}
    exact = {
        way: bool(np.array_equal(np.asarray(_load(file)), np.asarray(image))) for way, file in files.items()
    }
    spent: dict[str, list[float]] = {way: [sys.float_info.max] * 3 for way in WAYS}
    order = random.Random(1)
    for _ in range(ROUNDS):
        for way in order.sample(list(WAYS), len(WAYS)):
            steps: tuple[Callable[[], object], ...] = (
                lambda way=way: WAYS[way](image),
                lambda way=way: pybase64.b64encode_as_string(files[way]),
                lambda way=way: _leg(bodies[way]),
            )
            for place, step in enumerate(steps):
                began = time.process_time()
                step()
                spent[way][place] = min(spent[way][place], time.process_time() - began)
    return {way: Figures(len(files[way]), *spent[way], exact[way]) for way in WAYS}


def _leg(body: bytes) -> Image.Image:
    """SGLang's http_server (orjson), get_image_bytes and _load_image; its environment has the same versions of the three."""
    return _load(pybase64.b64decode(orjson.loads(body)["url"].split(",", 1)[1], validate=True))


def _load(file: bytes) -> Image.Image:
    image = Image.open(BytesIO(file))
    image.load()
    return image if image.mode == "RGB" else image.convert("RGB")


def memory() -> dict[str, float]:
    """Growth of this process at the peak of encoding, bytes a pixel, for a picture of 12.8 megapixels."""
    image = pictures.photo(4096, 3136)
    grown = {}
    for way in list(WAYS)[:4]:
        WAYS[way](image.crop((0, 0, 99, 99)))
        before = pictures.fresh_peak_mb()
        WAYS[way](image)
        grown[way] = (pictures.peak_mb() - before) * 2**20 / (image.width * image.height)
    return grown
