"""ServeGen's client folders: chunk-N-trace.csv (how fast client N asks) and chunk-N-dataset.json (what it asks).

A trace row is `start, rate, cv, family, shape, scale` of a window of ten minutes of one day; a dataset holds, for a few
windows, the distribution of each field as a text like "{50: 0.25, 60: 0.75}". A window without requests has rate 0 and
a distribution of nothing but zeros.
"""

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workloads.traces.record import TraceFault, opened

NAME = re.compile(r"chunk-(\d+)-trace\.csv")
FIELDS = ("text_tokens", "image_tokens", "image_count", "output_tokens")

Shares = tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class RateWindow:
    """start_s: seconds of the day; rate: requests per second; cv: of the gaps between them."""

    start_s: float
    rate: float
    cv: float


@dataclass(frozen=True, slots=True)
class Asked:
    """What a client asks in one window: values with their shares, which sum to 1. image_tokens: of one image."""

    start_s: float
    text_tokens: Shares
    image_tokens: Shares
    image_count: Shares
    output_tokens: Shares


@dataclass(frozen=True, slots=True)
class Client:
    """One client of the service."""

    number: int
    rates: tuple[RateWindow, ...]
    asked: tuple[Asked, ...]

    def rate(self, start_s: float, end_s: float) -> float:
        """Mean requests per second over the windows that begin in [start_s, end_s); 0 where there are none."""
        found = [window.rate for window in self.rates if start_s <= window.start_s < end_s]
        return sum(found) / len(found) if found else 0.0


def read_servegen(folder: Path) -> Iterator[Client]:
    """The clients in the order of their numbers, one at a time. Raises TraceFault."""
    numbers = sorted(int(found[1]) for entry in _entries(folder) if (found := NAME.fullmatch(entry)))
    if not numbers:
        raise TraceFault(folder, 0, "no ServeGen folder: it has no chunk-N-trace.csv.")
    for number in numbers:
        yield Client(
            number,
            tuple(_rates(folder / f"chunk-{number}-trace.csv")),
            tuple(_asked(folder / f"chunk-{number}-dataset.json")),
        )


def _entries(folder: Path) -> list[str]:
    try:
        return [entry.name for entry in folder.iterdir()]
    except OSError as error:
        raise TraceFault(folder, 0, f"cannot be read ({error.strerror}).") from error


def _rates(path: Path) -> Iterator[RateWindow]:
    last = -1.0
    with opened(path) as lines:
        rows = csv.reader(lines)
        for row in rows:
            try:
                window = RateWindow(float(row[0]), float(row[1]), float(row[2]))
                if not 0 <= window.rate < float("inf") or window.start_s <= last:
                    raise ValueError("a rate is 0 or larger, and windows rise")
                last = window.start_s
            except (ValueError, IndexError) as error:
                raise TraceFault(path, rows.line_num, f"{error}.") from error
            yield window


def _asked(path: Path) -> Iterator[Asked]:
    with opened(path) as text:
        try:
            windows: dict[str, Any] = json.load(text)
            for start, fields in sorted(windows.items(), key=lambda item: float(item[0])):
                yield Asked(float(start), *(_shares(fields[name]) for name in FIELDS))
        except json.JSONDecodeError as error:
            raise TraceFault(path, error.lineno, f"{error.msg}.") from error
        except KeyError as error:
            raise TraceFault(path, 0, f"no {error} in a window.") from error
        except (ValueError, TypeError, AttributeError) as error:
            raise TraceFault(path, 0, f"{error}.") from error


def _shares(text: str) -> Shares:
    if not (text.startswith("{") and text.endswith("}")):
        raise ValueError(f"no distribution: {text[:40]!r}")
    pairs: list[tuple[int, float]] = []
    for item in text[1:-1].split(","):
        value, _, share = item.partition(":")
        pairs.append((int(value), float(share)))
    total = sum(share for _, share in pairs)
    if not 0.999 < total < 1.001 or any(share < 0 or value < 0 for value, share in pairs):
        raise ValueError(f"shares that sum to {total:g}, or a number under 0")
    return tuple((value, share / total) for value, share in pairs)
