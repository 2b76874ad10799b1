"""How honest Retry-After is: those told 429 come back when they were told to, once, in virtual time. Are they served then?

    .venv/bin/python -m benchmarks.schedule.returning

The gateway's own scheduler before a prefill that computes one prompt after the other, four a second; 3 s to the first token.
Beside what it says, what a constant would do, and what it could say if it booked a place for each that it sends away. Writes
benchmarks/results/schedule-retry-after.md; the same figures on every machine.
"""

import statistics
from collections.abc import Callable
from math import ceil
from pathlib import Path

from serving.schedule.estimate import MAX_RETRY_AFTER_S
from tests.serving.schedule.returning import LOADS, PEAK, Says, arrivals, returning

PAGE = Path(__file__).resolve().parents[1] / "results" / "schedule-retry-after.md"
SEEDS = range(7)


class Booked:
    """Every one that is sent away gets a place of its own: no earlier than the gateway says, and so many service times after
    the one before."""

    def __init__(self, spacing: float) -> None:
        self._every_s = spacing / PEAK
        self._next = 0.0

    def __call__(self, says_s: float, now: float) -> float:
        at = max(now + says_s, self._next)
        self._next = at + self._every_s
        return float(min(MAX_RETRY_AFTER_S, max(1, ceil(at - now))))


SIDES: dict[str, Callable[[], Says]] = {
    "as it says": lambda: lambda says_s, _: says_s,
    "always 1 s": lambda: lambda *_: 1.0,
    "always 5 s": lambda: lambda *_: 5.0,
    "booked, one service time apart": lambda: Booked(1.0),
    "booked, two service times apart": lambda: Booked(2.0),
}


def rows(load: str) -> list[str]:
    lines = []
    for name, side in SIDES.items():
        played = [returning(arrivals(seed, LOADS[load]), side()) for seed in SEEDS]
        told = sorted(second for one in played for second in one.told_s)
        second, either = (
            [100 * getattr(one, f"{which}_share") for one in played] for which in ("second", "either")
        )
        lines.append(
            f"| {name} | {statistics.median(len(one.seconds) for one in played):.0f} | "
            f"{statistics.median(told):.0f}, {told[len(told) * 95 // 100]:.0f} | {middle(second)} | {middle(either)} |"
        )
    return lines


def middle(values: list[float]) -> str:
    """Median, and the range over the seeds."""
    return f"{statistics.median(values):.0f} ({min(values):.0f} to {max(values):.0f})"


def page() -> str:
    lines = [
        "# Those who come back when they were told to",
        "",
        f"`benchmarks/schedule/returning.py`: the gateway's own scheduler in virtual time, median (least to largest) of {len(SEEDS)} seeds. A",
        f"prefill that computes {PEAK:.0f} prompts a second, one after the other; 3 s to the first token. Who is refused comes back once,",
        "exactly after its Retry-After. No clock is read: every machine writes this page.",
    ]
    for load in LOADS:
        lines += [
            "",
            f"## {load[0].upper()}{load[1:]}",
            "",
            "| Retry-After | told 429 | seconds, median and p95 | served at the second try, % | served at either, % of all |",
            "|---|---|---|---|---|",
            *rows(load),
        ]
    lines += [
        "",
        "## What it shows",
        "",
        "The gateway tells each when the queue of that moment will have gone. It does not count those whom it has sent away before,",
        "so in a burst all are told the same second and come back together. Were each given a place of its own, a service time or",
        "two after the one before, far more would be served when they return; what is left then is what nobody could serve: with",
        "130 % for good, 23 % of all come in vain whatever they are told.",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(page())
