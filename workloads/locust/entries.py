"""One record as locust's statistics see it. Pure: no locust here.

Both times are from the intended arrival, as in the report: a generator that is late does not hide it. locust's line
`Aggregated` adds the two kinds of entries up; read the lines above it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from workloads.record import LoadOutcome

CHAT, TTFT = "CHAT", "TTFT"
AGAIN = " again"


class RequestFailed(Exception):
    """What is not completed: its outcome and code, few in number, so that locust can count them."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Arguments of locust's `events.request`. response_time: ms."""

    request_type: str
    name: str
    response_time: float
    exception: Exception | None = None
    response_length: int = 0


def entries(record: Mapping[str, Any]) -> Iterator[Entry]:
    """CHAT, the whole answer, and TTFT where a token came. record: a line of samples.jsonl; the name is its class.

    Attempts of clients who came back have a line of their own: they are no offer.
    """
    name, completed = record["class"], record["outcome"] == LoadOutcome.COMPLETED
    if record["attempt"]:
        name += AGAIN
    failure = None if completed else RequestFailed(f"{record['outcome']}: {record['code']}")
    yield Entry(CHAT, name, (record["ended_s"] - record["intended_s"]) * 1e3, failure)
    if record["ttft_scheduled_s"] is not None:
        yield Entry(TTFT, name, record["ttft_scheduled_s"] * 1e3)
