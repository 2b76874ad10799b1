"""What decoding and scaling may cost, and which of it a table of benchmarks.access.speed keeps. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

COLUMNS = ("naive", "processor", "limit", "MB")
"""Of the table, after file, method and CPU ms."""


@dataclass(frozen=True, slots=True)
class Bound:
    """most: times that of `base`, or megabytes where it is MB. why: what is known where it is not kept; {limit}: the
    decode's own part of the base."""

    file: str
    method: str
    base: str
    most: float
    why: str = ""


BOUNDS = (
    Bound("48 MP JPEG", "fast", "naive", 0.33),
    Bound(
        "48 MP JPEG",
        "fast",
        "processor",
        0.24,
        "At the scale that keeps small text at 45 dB (1/2) the decode alone is {limit} of it; the bound comes from a measurement of"
        " another version, whose processor took 1.46 of naive.",
    ),
    Bound("48 MP JPEG", "fast", "limit", 1.25),
    Bound("48 MP JPEG", "fast", "MB", 40),
    Bound("48 MP JPEG", "portable", "naive", 0.50),
    Bound("48 MP JPEG", "portable", "limit", 1.6),
    Bound("12 MP JPEG", "fast", "naive", 0.40),
    Bound("1080p JPEG", "fast", "naive", 0.45),
)


def verdict(rows: Sequence[str]) -> list[str]:
    """Lines for above the table with these rows: how many bounds are kept, and each that is not."""
    found = {}
    for row in rows:
        file, method, *cells = (cell.strip() for cell in row.strip("|").split("|"))
        numbers = cells[1 : 1 + len(COLUMNS)]
        for base, number in zip(COLUMNS, numbers, strict=True):
            if number:
                found[file.partition(",")[0], method, base] = number
    broken = [one for one in BOUNDS if float(found[one.file, one.method, one.base]) > one.most]
    lines = [
        f"{len(BOUNDS) - len(broken)} of {len(BOUNDS)} bounds are kept (benchmarks/access/speed_bounds.py)."
    ]
    for one in broken:
        what = f"{found[one.file, one.method, one.base]} {'MB' if one.base == 'MB' else f'of {one.base}'}"
        limit = found.get((one.file, "limit", one.base), "?")
        why = f" {one.why.format(limit=limit)}" if one.why else ""
        lines.append(f"Not kept: {one.file}, {one.method}: {what}, the bound is {one.most:g}.{why}")
    return lines
