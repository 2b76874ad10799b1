"""What preparing really takes: `python -m tests.serving.access.spending DECODER [MEGAPIXELS]` prints one JSON object per file.

A process of its own, warmed by small files of every kind; each file is prepared in a fork of it, whose peak of memory
and CPU time are told beside the estimate. The files are made by another fork, so that no free memory is left of that.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path

import numpy as np
from PIL import Image

from serving.access.cost import cost_of
from serving.access.decode import decode
from serving.access.decoder import choose
from serving.access.encode import encode
from serving.access.grids import QwenGrid
from serving.access.paint import paint
from serving.access.probe import probe
from serving.config import AccessConfig
from tests.serving.access import pictures
from tests.serving.access.pictures import saved

TRIES = 3
"""Forks per file: the one that took the least CPU time counts, since others' work on the host only adds."""
LIMITS = AccessConfig()
GRID = QwenGrid("qwen2_vl", factor=28, min_pixels=56 * 56, max_pixels=1280 * 28 * 28)


def files(megapixels: float) -> Iterator[tuple[str, bytes]]:
    """Pictures in every kind of file, of that size in a ratio of 4 to 3."""
    high = int((megapixels * 1e6 * 3 / 4) ** 0.5)
    photo = pictures.photo(high * 4 // 3, high)
    flat, clear = Image.new("RGB", photo.size, (200, 30, 90)), photo.copy()
    clear.putalpha(Image.linear_gradient("L").resize(photo.size))
    page = pictures.page(*photo.size)
    film = {"save_all": True, "append_images": [flat]}
    yield "JPEG 4:2:0", saved(photo, "JPEG", quality=90)
    yield "JPEG 4:4:4 q97", saved(photo, "JPEG", quality=97, subsampling=0)
    yield "JPEG turned", saved(photo, "JPEG", quality=90, exif=pictures.with_orientation(6))
    yield "JPEG progressive", saved(photo, "JPEG", quality=90, progressive=True)
    yield "JPEG progressive 4:4:4", saved(photo, "JPEG", quality=95, subsampling=0, progressive=True)
    yield "JPEG grey", saved(photo.convert("L"), "JPEG", quality=90)
    yield "JPEG CMYK", saved(photo.convert("CMYK"), "JPEG", quality=90)
    yield "PNG RGB photo", saved(photo, "PNG", compress_level=1)
    yield "PNG RGB page", saved(page, "PNG")
    yield "PNG RGB flat", saved(flat, "PNG")
    yield "PNG RGBA", saved(clear, "PNG", compress_level=1)
    yield "PNG palette", saved(photo.quantize(64), "PNG")
    yield "PNG palette, clear", saved(photo.quantize(64), "PNG", transparency=3)
    yield "PNG 1 bit", saved(page.convert("1"), "PNG")
    yield (
        "PNG grey, 16 bit",
        saved(Image.fromarray(np.asarray(photo.convert("L")).astype(np.uint16) * 257), "PNG"),
    )
    yield "WebP lossy", saved(photo, "WEBP", quality=80, method=0)
    yield "WebP lossy, clear", saved(clear, "WEBP", quality=80, method=0)
    yield "WebP lossless", saved(photo, "WEBP", lossless=True, quality=0, method=0)
    yield "WebP animated", saved(photo, "WEBP", quality=80, method=0, **film)
    yield "GIF", saved(photo.quantize(64), "GIF")
    yield "AVIF", saved(photo, "AVIF", quality=60, speed=10)
    yield "AVIF, clear", saved(clear, "AVIF", quality=60, speed=10)
    yield "AVIF 4:4:4", saved(photo, "AVIF", quality=95, subsampling="4:4:4", speed=10)


def spent(name: str, data: bytes, decoder: str) -> dict[str, object]:
    """Estimate and truth of one file, in a fork of this process."""
    header = probe(data, LIMITS)
    target = GRID.target_size(*header.size)
    cost = cost_of(header, target, decoder)
    inward, outward = os.pipe()
    child = os.fork()
    if child == 0:
        before = pictures.fresh_peak_mb()
        began = time.process_time()
        picture = decode(data, header, target, decoder)
        cpu_s = time.process_time() - began
        encode(picture, "png")
        told = {"cpu_s": cpu_s, "mb": (pictures.peak_mb() - before) * 1.048576}
        os.write(outward, json.dumps(told).encode())
        os._exit(0)
    os.close(outward)
    with os.fdopen(inward) as answer:
        told = json.loads(answer.read())
    os.waitpid(child, 0)
    return {
        "file": name,
        "decoder": decoder,
        "pixels": header.pixels,
        "bytes": len(data),
        "mb": told["mb"],
        "estimated_mb": cost.memory_bytes / 1e6,
        "cpu_s": told["cpu_s"],
        "estimated_s": cost.cpu_s,
    }


def main(arguments: list[str]) -> int:
    """One line per file."""
    decoder = arguments[0]
    choose(decoder)
    megapixels = float(arguments[1]) if len(arguments) > 1 else 2.0
    with tempfile.TemporaryDirectory() as folder:
        for kind, most in (("small", 0.1), ("large", megapixels)):
            for name, path in _made(Path(folder) / kind, most):
                data = path.read_bytes()
                header = probe(data, LIMITS)
                if kind == "small":
                    paint(data, header, GRID.target_size(*header.size), "png", decoder)
                else:
                    tries = [spent(name, data, decoder) for _ in range(TRIES)]
                    print(json.dumps(min(tries, key=itemgetter("cpu_s"))), flush=True)
    return 0


def _made(folder: Path, megapixels: float) -> list[tuple[str, Path]]:
    """Names and paths of the files, in order."""
    folder.mkdir()
    child = os.fork()
    if child == 0:
        for number, (name, data) in enumerate(files(megapixels)):
            if len(data) <= LIMITS.max_image_bytes:
                (folder / f"{number:02} {name.replace(':', '.')}").write_bytes(data)
        os._exit(0)
    os.waitpid(child, 0)
    return [(path.name[3:].replace(".", ":"), path) for path in sorted(folder.iterdir())]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
