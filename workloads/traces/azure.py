"""Azure's inference traces: LLM 2023 and 2024 (TIMESTAMP,ContextTokens,GeneratedTokens), LMM 2025 (with NumImages)."""

import csv
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from workloads.traces.record import TraceFault, TraceRecord, count_of, opened

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
IMAGES = "NumImages"


def read_azure(path: Path) -> Iterator[TraceRecord]:
    """The records, one at a time. Raises TraceFault for the first line that is none, or that goes back in time."""
    with opened(path) as lines:
        rows = csv.reader(lines)
        header = next(rows, [])
        try:
            at, context, generated = (header.index(name) for name in COLUMNS)
        except ValueError as error:
            raise TraceFault(path, 1, f"no Azure trace: the header has no {', '.join(COLUMNS)}.") from error
        images = header.index(IMAGES) if IMAGES in header else None
        first = last = None
        for row in rows:
            if not row:
                continue
            try:
                moment = _seconds(row[at])
                first = moment if first is None else first
                if last is not None and moment < last:
                    raise ValueError(f"{row[at]} is earlier than the line before")
                last = moment
                yield TraceRecord(
                    round(moment - first, 7),
                    count_of(row[context]),
                    count_of(row[generated]),
                    0 if images is None else count_of(row[images]),
                )
            except (ValueError, IndexError) as error:
                raise TraceFault(path, rows.line_num, f"{error}.") from error


def _seconds(text: str) -> float:
    # "2023-11-16 18:15:46.6805900" has a digit more than fromisoformat takes; "2024-10-15T12:00:05.819Z" a zone.
    whole, _, fraction = text.strip().removesuffix("Z").partition(".")
    if fraction and not fraction.isdecimal():
        raise ValueError(f"{text!r} is no time")
    moment = datetime.fromisoformat(whole)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.timestamp() + (float(f"0.{fraction}") if fraction else 0.0)
