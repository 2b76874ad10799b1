"""Decoding and scaling photos for the Qwen grid, side by side: CPU time, memory, closeness to the engine's own pixels.

    .venv/bin/python -m benchmarks.access.speed [--rounds 7] [--out benchmarks/results/access-speed.md]

naive: Pillow's open, convert and resize. processor: transformers' Qwen2VLImageProcessor in the engine's environment,
from bytes to pixel_values. limit: libjpeg-turbo alone, at the scale that is used. All take turns, in random order, in one
run, one thread each; a number is the least CPU time of all rounds. Memory is that of a fresh, warmed process for each.
"""

import argparse
import gc
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path

import numpy as np
import simplejpeg
from PIL import Image

from benchmarks.access.speed_bounds import verdict
from benchmarks.access.speed_path import path_table
from serving.access.decode import decode, shrink_of
from serving.access.decoder import choose
from serving.access.grids import QwenGrid
from serving.access.header import ImageHeader
from serving.access.probe import probe
from serving.config import AccessConfig
from tests.serving.access import pictures

ROOT = Path(__file__).resolve().parents[2]
LIMITS = AccessConfig(max_image_bytes=100_000_000)
GRID = QwenGrid("qwen2_vl", factor=28, min_pixels=56 * 56, max_pixels=1280 * 28 * 28)
ENGINE = ROOT / ".venv-engine" / "bin" / "python"
SHIMS = ROOT / "serving" / "engines" / "cpu_host"

Method = Callable[[bytes, ImageHeader, tuple[int, int]], object]


def naive(data: bytes, _: ImageHeader, target: tuple[int, int]) -> object:
    return Image.open(BytesIO(data)).convert("RGB").resize(target, Image.Resampling.BICUBIC)


def limit(data: bytes, header: ImageHeader, target: tuple[int, int]) -> object:
    shrink = shrink_of(header, target)
    least = {"min_width": -(-header.width // shrink), "min_height": -(-header.height // shrink)}
    return simplejpeg.decode_jpeg(data, **least)


METHODS: dict[str, Method] = {
    "naive": naive,
    "portable": lambda data, header, target: decode(data, header, target, "portable"),
    "fast": lambda data, header, target: decode(data, header, target, "fast"),
    "limit": limit,
}


class Processor:
    """The engine's image processor, at the other end of a pipe."""

    def __init__(self) -> None:
        command = [str(ENGINE), str(ROOT / "benchmarks/access/speed_engine.py"), str(SHIMS)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def ask(self, *paths: Path) -> float:
        """CPU seconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join(map(str, paths)) + "\n")
        self._process.stdin.flush()
        return float(json.loads(self._process.stdout.readline())["cpu_s"])

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def files(folder: Path) -> dict[str, Path]:
    """The photos; grain makes the large ones as heavy as a camera's."""
    found = {}

    def keep(name: str, picture: Image.Image, kind: str, **options: object) -> None:
        found[name] = folder / f"{len(found)}.{kind.lower()}"
        found[name].write_bytes(pictures.saved(picture, kind, **options))

    large = Image.blend(pictures.photo(8000, 6000), Image.effect_noise((8000, 6000), 40).convert("RGB"), 0.1)
    keep("48 MP JPEG", large, "JPEG", quality=90)
    keep("12 MP JPEG", pictures.photo(4000, 3000), "JPEG", quality=90)
    keep("1080p JPEG", pictures.photo(1920, 1080), "JPEG", quality=92)
    keep("48 MP progressive", large, "JPEG", quality=90, progressive=True)
    keep("48 MP WebP", large, "WEBP", quality=80, method=0)
    keep("12 MP PNG", pictures.photo(4000, 3000), "PNG", compress_level=1)
    return found


def measure(path: Path, rounds: int, processor: Processor) -> dict[str, list[float]]:
    """CPU seconds of each round by method."""
    data = path.read_bytes()
    header = probe(data, LIMITS)
    target = GRID.target_size(*header.size)
    methods = {name: METHODS[name] for name in METHODS if name != "limit" or header.format == "JPEG"}
    found: dict[str, list[float]] = {name: [] for name in (*methods, "processor")}
    for _ in range(rounds):
        for name in random.sample(sorted(found), len(found)):
            if name == "processor":
                found[name].append(processor.ask(path))
                continue
            began = time.process_time()
            made = methods[name](data, header, target)
            found[name].append(time.process_time() - began)
            del made
    return found


def closeness(path: Path, processor: Processor) -> dict[str, tuple[float, int]]:
    """(dB, largest difference) of portable and fast from a full decode and the engine's resize."""
    data = path.read_bytes()
    header = probe(data, LIMITS)
    kept = path.with_suffix(".npy")
    processor.ask(path, kept)
    whole, found = np.load(kept).astype(int), {}
    for name in ("portable", "fast"):
        made = decode(data, header, GRID.target_size(*header.size), name)  # type: ignore[arg-type]
        apart = np.abs(np.asarray(made, dtype=int) - whole)
        error = float((apart.astype(float) ** 2).mean())
        found[name] = (10 * np.log10(255**2 / error) if error else np.inf, int(apart.max()))
    return found


def growth_mb(name: str, path: Path) -> float:
    """Peak of a fresh process over what it held before; the file itself is held before."""
    command = [sys.executable, "-m", "benchmarks.access.speed", "--memory", name, str(path)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout)


def tell_growth(name: str, path: Path) -> None:
    data = path.read_bytes()
    header = probe(data, LIMITS)
    small = pictures.saved(pictures.photo(640, 480), header.format)
    for _ in range(3):
        METHODS[name](small, probe(small, LIMITS), (280, 196))
    gc.collect()
    before = pictures.fresh_peak_mb()
    made = METHODS[name](data, header, GRID.target_size(*header.size))
    print((pictures.peak_mb() - before) * 1.048576)
    del made


def rows(name: str, path: Path, rounds: int, processor: Processor) -> list[str]:
    """Of the table, one by method."""
    cpu = {method: min(took) for method, took in measure(path, rounds, processor).items()}
    near = closeness(path, processor)
    found = []
    for method in ("naive", "processor", "portable", "fast", "limit"):
        if method not in cpu:
            continue
        ratios = [
            f"{cpu[method] / cpu[base]:.2f}" if base in cpu else ""
            for base in ("naive", "processor", "limit")
        ]
        memory = "" if method in ("processor", "limit") else f"{growth_mb(method, path):.0f}"
        decibels, most = near.get(method, (0.0, -1))
        pixels = {-1: "", 0: "the same"}.get(most, f"{decibels:.1f} dB, {most}")
        cells = [
            f"{name}, {path.stat().st_size / 1e6:.1f} MB",
            method,
            f"{cpu[method] * 1e3:.0f}",
            *ratios,
            memory,
            pixels,
        ]
        found.append("| " + " | ".join(cells) + " |")
        print(found[-1], flush=True)
    return found


def page(rounds: int) -> str:
    """Measures; the text of the results page."""
    processor = Processor()
    with tempfile.TemporaryDirectory() as folder:
        made = files(Path(folder))
        lines = [line for name, path in made.items() for line in rows(name, path, rounds, processor)]
        processor.close()
        steps = path_table({name: made[name] for name in list(made)[:3]}, rounds)
    host = f"{len(os.sched_getaffinity(0))} cores at a load of {os.getloadavg()[1]:.0f}"
    return "\n".join(
        [
            "# Decoding and scaling, side by side",
            "",
            f"`.venv/bin/python -m benchmarks.access.speed --rounds {rounds}`, {datetime.now(UTC):%Y-%m-%d}, {host},",
            f"Python {platform.python_version()}, {', '.join(choose('fast').libraries)}.",
            "",
            "To the grid of Qwen2-VL at 1280 x 28 x 28 pixels (a 4:3 photo: 1148x840). CPU time of one thread, the least of all",
            "rounds; memory: megabytes over a warmed process, the file not counted.",
            "naive: Pillow's open, convert, resize. processor: transformers' Qwen2VLImageProcessor, bytes to pixel_values.",
            "limit: libjpeg-turbo alone at the scale in use. Last column: how far from the pixels that the processor's own resize",
            "makes of a full decode, in dB, and the largest difference of a level.",
            "",
            *verdict(lines),
            "",
            "| file | method | CPU ms | / naive | / processor | / limit | MB | pixels |",
            "|---|---|---|---|---|---|---|---|",
            *lines,
            "",
            *steps,
            "",
        ]
    )


def main() -> int:
    """Print and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/access-speed.md")
    parser.add_argument("--memory", nargs=2, metavar=("METHOD", "FILE"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.memory:
        tell_growth(asked.memory[0], Path(asked.memory[1]))
        return 0
    asked.out.write_text(page(asked.rounds), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
