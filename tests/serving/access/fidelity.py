"""How far the pixels that the engine sees are from its processor's own of the original file: cases and measure."""

import json
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pybase64

from serving.access.decode import decode, shrink_of
from serving.access.decoder import Choice, choose
from serving.access.encode import encode
from serving.access.grids import QwenGrid
from serving.access.probe import probe
from serving.config import AccessConfig, Handover
from tests.serving.access import pictures
from tests.serving.access.pictures import saved

ROOT = Path(__file__).parents[3]
SCRIPT = Path(__file__).with_name("engine_pixels.py")
TINY, WIDE = 200_704, 1_003_520
"""max_pixels: the tiny model's, and that of the Qwen-VL image processor by default."""

DECODERS: tuple[Choice, ...] = ("portable", "fast") if choose("auto").name == "fast" else ("portable",)
"""Those whose libraries are here."""


@dataclass(frozen=True)
class Row:
    """One picture on its way. scale: the DCT scale's denominator, 1 where none is used; psnr: dB, inf: no difference.

    most: largest difference of any channel, levels; above: share of values further than one level off. grids: the
    processor's of the original, and of what it got.
    """

    case: str
    max_pixels: int
    decoder: str
    handover: Handover
    scale: int
    psnr: float
    most: int
    above: float
    grids: tuple[list[int], list[int]]


def photo(width: int, height: int, kind: str = "JPEG", **options: object) -> bytes:
    return saved(pictures.photo(width, height), kind, **({"quality": 92} | options))


def page(width: int, height: int, font: int, kind: str = "JPEG") -> bytes:
    return saved(pictures.page(width, height, font), kind, quality=92)


def rings(side: int, kind: str = "JPEG") -> bytes:
    return saved(pictures.zone_plate(side), kind, quality=92)


def holds(row: Row) -> bool:
    """What is promised of a handover without loss, and the processor's own grid.

    With a DCT scale 45 dB and 17 levels. Without: one level; torch's arithmetic differs from Pillow's in single values by
    two, in five of a million at most.
    """
    if row.grids[0] != row.grids[1]:
        return False
    if row.scale > 1:
        return row.psnr >= 45 and row.most <= 17
    return row.most <= 1 or (row.most == 2 and row.above <= 5e-6)


def measure(
    cases: Mapping[str, Callable[[], bytes]],
    handovers: Sequence[Handover],
    sizes: Iterable[int],
    python: str,
    work: Path,
) -> list[Row]:
    """Every case through every decoder and handover at every max_pixels, in one process of the engine's interpreter."""
    asked, rows = [], []
    for number, (case, make) in enumerate(cases.items()):
        data = make()
        original = work / f"{number}.original"
        original.write_bytes(data)
        header = probe(data, AccessConfig())
        for most in sizes:
            target = QwenGrid("qwen", 28, 56 * 56, most).target_size(*header.size)
            shrink = shrink_of(header, target) if header.format == "JPEG" else 1
            handed = []
            for decoder in DECODERS:
                picture = decode(data, header, target, decoder)
                for handover in handovers:
                    file = work / f"{number}-{most}-{decoder}.{handover}"
                    text = pybase64.b64encode_as_string(encode(picture, handover))
                    file.write_text(f"data:image/{handover};base64,{text}")
                    handed.append(str(file))
                    rows.append((case, most, decoder, handover, shrink))
            asked.append({"original": str(original), "max_pixels": most, "handed": handed})
    run = subprocess.run(
        [python, str(SCRIPT), str(ROOT / "serving" / "engines" / "cpu_host")],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    answers = [answer for case in json.loads(run.stdout) for answer in case]
    return [
        Row(*row, float("inf") if a["psnr"] is None else a["psnr"], a["most"], a["above"], tuple(a["grid"]))
        for row, a in zip(rows, answers, strict=True)
    ]
