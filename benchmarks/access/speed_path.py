"""What an image's request pays besides decoding: every step over its bytes or pixels."""

import hashlib
import time
from collections.abc import Callable
from pathlib import Path

import pybase64

from serving.access.decode import decode
from serving.access.encode import encode
from serving.access.grids import QwenGrid
from serving.access.probe import probe
from serving.config import AccessConfig

LIMITS = AccessConfig(max_image_bytes=100_000_000)
GRID = QwenGrid("qwen2_vl", factor=28, min_pixels=56 * 56, max_pixels=1280 * 28 * 28)


def path_table(files: dict[str, Path], rounds: int) -> list[str]:
    """CPU milliseconds by step and file, the least of all rounds."""
    columns = {name: _steps(path.read_bytes(), rounds) for name, path in files.items()}
    steps = next(iter(columns.values()))
    return [
        "## The steps of one image, fast, CPU ms",
        "",
        "| step | " + " | ".join(columns) + " |",
        "|---|" + "---|" * len(columns),
        *(
            f"| {step} | " + " | ".join(f"{took[step]:.1f}" for took in columns.values()) + " |"
            for step in steps
        ),
    ]


def _steps(data: bytes, rounds: int) -> dict[str, float]:
    header = probe(data, LIMITS)
    target = GRID.target_size(*header.size)
    text = pybase64.b64encode(data)
    picture = decode(data, header, target, "fast")
    file = encode(picture, "png")
    steps: dict[str, Callable[[], object]] = {
        "base64 to bytes": lambda: pybase64.b64decode(text, validate=True),
        "SHA-256": lambda: hashlib.sha256(data).digest(),
        "walk and probe": lambda: probe(data, LIMITS),
        "decode and scale": lambda: decode(data, header, target, "fast"),
        "encode as png": lambda: encode(picture, "png"),
        "encode as ppm": lambda: encode(picture, "ppm"),
        "encode as webp": lambda: encode(picture, "webp"),
        "encode as jpeg": lambda: encode(picture, "jpeg"),
        "png to base64": lambda: pybase64.b64encode_as_string(file),
    }
    found = dict.fromkeys(steps, float("inf"))
    for _ in range(rounds):
        for step, work in steps.items():
            began = time.process_time()
            work()
            found[step] = min(found[step], (time.process_time() - began) * 1e3)
    return found
