"""What gateways and their ledger tell each other: what is asked, what is answered, what is published. Pure.

Whoever may write to the server may write anything, so what was not made here is taken for nothing.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import Any, NamedTuple

from serving.schedule.shared.fair import Demand


class Part(NamedTuple):
    """Pages of one pool. granted: to be used now. alone: while nobody reaches the ledger."""

    granted: int = 0
    alone: int = 0


NOTHING = Part()


class Wanted(NamedTuple):
    """Of one pool with so many pages in all: what is kept whatever is answered (no more is used from now on), and what would
    be right to have."""

    pages: int
    keep: Part
    want: Part


@dataclass(frozen=True, slots=True)
class Said:
    """What a gateway publishes: its demand by pool; requests and retries of late; by pool, which engine that is by its own
    word."""

    demand: Mapping[str, Demand] = field(default_factory=dict)
    requests: int = 0
    retries: int = 0
    engines: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ask:
    """One renewal. life_ms: how long what is answered holds. epoch: that of the last answer; 0: none. number: grows with each.
    by_ms: the server's own time after which it comes too late; 0: not known. pools: by the decode's URL."""

    life_ms: int
    epoch: int
    number: int
    by_ms: int
    pools: Mapping[str, Wanted]
    said: Said

    def text(self) -> str:
        """As the ledger's script reads it."""
        pools = {
            url: [one.pages, one.keep.granted, one.want.granted, one.keep.alone, one.want.alone]
            for url, one in self.pools.items()
        }
        asked = (self.life_ms, self.epoch, self.number, self.by_ms)
        said = json.dumps(asdict(self.said), separators=(",", ":"))
        return json.dumps([*asked, pools, said], separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Other:
    """Another gateway whose grant has not expired."""

    parts: Mapping[str, Part]
    said: Said


@dataclass(frozen=True, slots=True)
class Answer:
    """now_ms: the server's time. late: the ask came too late or out of order and changed nothing. lapsed: the ledger knew
    nothing of this gateway (any more), and began a new epoch for it."""

    now_ms: int
    late: bool = False
    epoch: int = 0
    lapsed: bool = False
    parts: Mapping[str, Part] = field(default_factory=dict)
    others: Mapping[str, Other] = field(default_factory=dict)


def answer_of(text: str | bytes) -> Answer:
    """What the script said. Raises ValueError."""
    try:
        told: dict[str, Any] = json.loads(text)
        if told.get("late"):
            return Answer(int(told["now"]), late=True)
        return Answer(
            int(told["now"]),
            epoch=int(told["epoch"]),
            lapsed=bool(told["lapsed"]),
            parts=_parts(told["parts"]),
            others={str(name): _other(one) for name, one in told["others"].items()},
        )
    except (LookupError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"no answer of a ledger: {error!r:.100}") from error


def said_of(text: object) -> Said:
    """What another gateway published; nothing where that is not what a gateway says."""
    try:
        told = json.loads(text) if isinstance(text, str) else {}
        return Said(
            {
                url: Demand(
                    {str(name): _count(pages) for name, pages in one["by_class"].items()},
                    _count(one["largest"]),
                    _finite(one["waited_s"]),
                )
                for url, one in told["demand"].items()
            },
            _count(told["requests"]),
            _count(told["retries"]),
            {str(url): str(one) for url, one in told.get("engines", {}).items()},
        )
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError):
        return Said()


def _parts(told: Mapping[str, Any]) -> dict[str, Part]:
    return {url: Part(_count(granted), _count(alone)) for url, (granted, alone) in told.items()}


def _other(told: Mapping[str, Any]) -> Other:
    """Another gateway as the server has it: whoever wrote it there, its parts are taken for nothing where they are none."""
    try:
        parts = _parts(told["parts"])
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError):
        parts = {}
    return Other(parts, said_of(told.get("said")))


def _count(value: float) -> int:
    return min(1 << 50, max(0, int(value)))


def _finite(value: float) -> float:
    if not isfinite(value):
        raise ValueError("not a time")
    return float(value)
