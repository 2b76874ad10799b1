"""Mooncake's traces: JSON lines with timestamp (ms), input_length, output_length, hash_ids (blocks of 512 tokens)."""

from collections.abc import Iterator
from pathlib import Path

import orjson

from workloads.traces.record import TraceFault, TraceRecord, count_of, opened


def read_mooncake(path: Path) -> Iterator[TraceRecord]:
    """The records, one at a time. Raises TraceFault for the first line that is none, or that goes back in time."""
    first = last = None
    with opened(path) as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                item = orjson.loads(line)
                moment = float(item["timestamp"])
                first = moment if first is None else first
                if last is not None and moment < last:
                    raise ValueError(f"timestamp {item['timestamp']} is earlier than the line before")
                last = moment
                yield TraceRecord(
                    (moment - first) / 1000,
                    count_of(item["input_length"]),
                    count_of(item["output_length"]),
                    blocks=tuple(count_of(block) for block in item.get("hash_ids", ())),
                )
            except KeyError as error:
                raise TraceFault(path, number, f"no {error} in it.") from error
            except (ValueError, TypeError, AttributeError) as error:
                raise TraceFault(path, number, f"{error}.") from error
