"""How far the pixels that the engine sees are from its own processor's of the original file.

    .venv/bin/python -m benchmarks.access.fidelity

Original: decoded whole by Pillow, resized by the processor that SGLang runs (torchvision, antialiased bicubic, uint8).
Ours: decoded and resized here, encoded, decoded by SGLang's loader, then the same processor, whose resize must be a no-op.
"""

import math
import sys
import tempfile
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import get_args

from serving.config import Handover
from tests.serving.access.fidelity import ROOT, TINY, WIDE, Row, holds, measure, page, photo, rings
from tests.serving.access.pictures import PHOTOS, with_orientation

RESULT = ROOT / "benchmarks" / "results" / "access-fidelity.md"
CASES: dict[str, Callable[[], bytes]] = {
    "photo 640x427 (a real one)": (PHOTOS / "china.jpg").read_bytes,
    "photo 1600x1200": lambda: photo(1600, 1200),
    "photo 1920x1080": lambda: photo(1920, 1080),
    "photo 1920x1080, Exif 6": lambda: photo(1920, 1080, exif=with_orientation(6)),
    "photo 4000x3000": lambda: photo(4000, 3000),
    "photo 4000x3000 progressive": lambda: photo(4000, 3000, progressive=True),
    "photo 8000x6000": lambda: photo(8000, 6000),
    "text page 2480x3508, 10 pt at 300 dpi": lambda: page(2480, 3508, 42),
    "text page 2480x3508, 5 pt": lambda: page(2480, 3508, 20),
    "text page 4960x7016, 10 pt at 600 dpi": lambda: page(4960, 7016, 84),
    "zone plate 2048x2048": lambda: rings(2048),
    "zone plate 4096x4096": lambda: rings(4096),
    "photo 1920x1080 PNG": lambda: photo(1920, 1080, "PNG"),
    "photo 1920x1080 WebP": lambda: photo(1920, 1080, "WEBP"),
    "photo 1920x1080 AVIF": lambda: photo(1920, 1080, "AVIF"),
    "text page 2480x3508 PNG": lambda: page(2480, 3508, 42, "PNG"),
    "zone plate 2048x2048 PNG": lambda: rings(2048, "PNG"),
}
LOSSLESS = ("ppm", "png", "webp")
OUTSIDE = "text page 5000x7000, 2.5 pt: illegible once resized"
HEAD = """\
# Fidelity of the pixels that the engine sees

`.venv/bin/python -m benchmarks.access.fidelity`. Peak signal-to-noise ratio in dB / largest difference of a channel in levels
of 255, against what the served model's own processor (transformers in SGLang's environment) makes of the original file
before it normalises. JPEGs are q92 4:2:0. scale: the JPEG decoder's; 1/1: decoded in full.

Promised, and kept in {kept} of {count} measurements of the lossless ways: with a scale 45 dB and 17 levels; without one, one level
(Pillow's resize: two in single values, here {above:.1f} in a million at most; torch multiplies with 16-bit weights). ppm, png
and webp are equal to each other in every row; jpeg is what `access.handover = "jpeg"` leaves. The token grid of what is handed
over is that of the original in {grids} of {all} measurements. The last row stands outside the promise: no DCT scale keeps text
that does not survive the resize.

| file | max_pixels | decoder | scale | ppm, png, webp | jpeg |
|---|---|---|---|---|---|
"""


def main() -> int:
    """Write the page and print it; 1 where a promise does not hold."""
    python = str(ROOT / ".venv-engine" / "bin" / "python")
    cases = CASES | {OUTSIDE: lambda: page(5000, 7000, 20)}
    with tempfile.TemporaryDirectory() as work:
        rows = measure(cases, get_args(Handover), (TINY, WIDE), python, Path(work))
    text = text_of(rows)
    RESULT.write_text(text, encoding="utf-8")
    print(text)
    return 0 if all(holds(row) for row in promised(rows)) else 1


def promised(rows: list[Row]) -> list[Row]:
    """Those that must keep the bounds."""
    return [row for row in rows if row.handover in LOSSLESS and row.case != OUTSIDE]


def text_of(rows: list[Row]) -> str:
    """One line per case, size and decoder."""
    bound = promised(rows)
    head = HEAD.format(
        kept=sum(map(holds, bound)),
        count=len(bound),
        above=1e6 * max(row.above for row in bound if row.scale == 1),
        grids=sum(row.grids[0] == row.grids[1] for row in rows),
        all=len(rows),
    )
    lines = []
    for (case, most, decoder), group in groupby(rows, lambda row: (row.case, row.max_pixels, row.decoder)):
        ways = {row.handover: row for row in group}
        lossless = " and ".join(sorted({shown(ways[way]) for way in LOSSLESS}))
        lines.append(
            f"| {case} | {most:,} | {decoder} | 1/{ways['png'].scale} | {lossless} | {shown(ways['jpeg'])} |\n"
        )
    return head + "".join(lines)


def shown(row: Row) -> str:
    """dB / levels."""
    return "equal" if math.isinf(row.psnr) else f"{row.psnr:.1f} / {row.most}"


if __name__ == "__main__":
    sys.exit(main())
