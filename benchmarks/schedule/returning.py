"""How honest Retry-After is: those told 429 come back when they were told to, once, in virtual time. Are they served then?

    .venv/bin/python -m benchmarks.schedule.returning

The gateway's own scheduler before a prefill that computes one prompt after the other, four a second; 3 s to the first token.
Beside what it says, what a constant would do. Writes benchmarks/results/schedule-retry-after.md; the same figures on every machine.
"""

import statistics
from collections.abc import Callable
from pathlib import Path

from benchmarks.schedule.priority import middle
from tests.serving.schedule.returning import LOADS, PEAK, Says, arrivals, returning

PAGE = Path(__file__).resolve().parents[1] / "results" / "schedule-retry-after.md"
SEEDS = range(7)


SIDES: dict[str, Callable[[], Says]] = {
    "as it says": lambda: lambda says_s, _: says_s,
    "always 1 s": lambda: lambda *_: 1.0,
    "always 5 s": lambda: lambda *_: 5.0,
}


def rows(load: str) -> list[str]:
    lines = []
    for name, side in SIDES.items():
        played = [returning(arrivals(seed, LOADS[load]), side()) for seed in SEEDS]
        told = sorted(second for one in played for second in one.told_s)
        served = (
            [100 * getattr(one, f"{which}_share") for one in played] for which in ("second", "amid", "either")
        )
        cells = " | ".join(middle(shares, ".0f") for shares in served)
        lines.append(
            f"| {name} | {statistics.median(len(one.seconds) for one in played):.0f} | "
            f"{statistics.median(told):.0f}, {told[len(told) * 95 // 100]:.0f} | {cells} |"
        )
    return lines


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
            "| Retry-After | told 429 | seconds, median and p95 | served at the second try, % | of those who return under load, % | served at either, % of all |",
            "|---|---|---|---|---|---|",
            *rows(load),
        ]
    lines += [
        "",
        "## What it shows",
        "",
        "A constant sends all who were refused in one moment back in another one moment. The gateway books: each is told when there is",
        "room for it, and two service times after the one before (`serving/schedule/bookings.py`), so that half of what the prefill does",
        "is left for those who come of their own. In a surge more are sent away than 30 s of bookings hold; who is told the most there is",
        "is also told that it is no promise. Under load for good a booking is no seat either: who comes of its own comes before it.",
        "Some return when nobody comes of their own any more, and the longer they are told to wait the more of them; so those who return",
        "under load are counted apart.",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(page())
