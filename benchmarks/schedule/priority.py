"""First in, first out against length-aware priority, and a fixed against an adaptive in-flight limit: in virtual time.

    .venv/bin/python benchmarks/schedule/priority.py

Both sides are the gateway's own scheduler (serving/schedule), FIFO by rules under which all requests are alike, over the
same arrivals. Writes benchmarks/results/schedule-priority.md; the same figures on every machine.
"""

import random
import statistics
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from serving.schedule.priority import Rules
from tests.serving.schedule.virtual import Ask, Fate, Prefill, fifo, flood, p95, rules, run
from toolkit.core.sample import WorkloadClass

ROOT = Path(__file__).resolve().parents[2]
SEEDS = range(7)
WINDOW_S = 60.0
TEXT, LONG = WorkloadClass.TEXT_ONLY, WorkloadClass.MULTI_IMAGE_LONG
PAGE = ROOT / "benchmarks" / "results" / "schedule-priority.md"


def of(fates: list[Fate], workload_class: WorkloadClass) -> list[Fate]:
    return [fate for fate in fates if fate.ask.workload_class is workload_class]


def middle(values: list[float], form: str = ".2f") -> str:
    """Median, and the range over the seeds."""
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def flooded(load: float) -> list[str]:
    """Long requests at `load` of all slots, no deadlines."""
    short: dict[str, list[float]] = {"fifo": [], "priority": []}
    done: dict[str, list[float]] = {"fifo": [], "priority": []}
    longest: dict[str, list[float]] = {"fifo": [], "priority": []}
    for seed in SEEDS:
        asks = flood(seed, load, WINDOW_S)
        for name, told in (("fifo", fifo()), ("priority", rules())):
            fates = run(told, asks)
            short[name].append(p95([fate.wait_s + fate.ask.first_s for fate in of(fates, TEXT)]))
            done[name].append(
                sum(fate.ended is not None and fate.ended <= WINDOW_S for fate in of(fates, LONG)) / WINDOW_S
            )
            longest[name].append(max(fate.wait_s for fate in of(fates, LONG)))
    better = [a / b for a, b in zip(short["fifo"], short["priority"], strict=True)]
    lost = [100 * (1 - b / a) for a, b in zip(done["fifo"], done["priority"], strict=True)]
    return [
        f"| {load:.0%} | short TTFT P95, s | {middle(short['fifo'])} | {middle(short['priority'])} | {middle(better, '.1f')} x better |",
        f"| | long finished /s | {middle(done['fifo'])} | {middle(done['priority'])} | {middle(lost, '.1f')} % lost |",
        f"| | longest wait of a long one, s | {middle(longest['fifo'], '.1f')} | {middle(longest['priority'], '.1f')} | |",
    ]


def promised(load: float) -> list[str]:
    """The same arrivals with 3 s to the first token."""
    rows = []
    for name, told in (("first in, first out", fifo()), ("priority", rules())):
        good: dict[WorkloadClass, list[float]] = {TEXT: [], LONG: []}
        early, late = [], []
        for seed in SEEDS:
            fates = run(told, [replace(ask, budget_s=3.0) for ask in flood(seed, load, WINDOW_S)])
            for kind, shares in good.items():
                mine = of(fates, kind)
                shares.append(100 * sum(fate.good for fate in mine) / len(mine))
            early.append(100 * sum(fate.refused is not None for fate in fates) / len(fates))
            late.append(100 * sum(fate.timed_out for fate in fates) / len(fates))
        rows.append(
            f"| {load:.0%} | {name} | {middle(good[TEXT], '.0f')} | {middle(good[LONG], '.0f')} | {middle(early, '.0f')} | {middle(late, '.1f')} |"
        )
    return rows


PHASES = ((0.0, 30.0, 0.8), (30.0, 60.0, 2.0), (60.0, 120.0, 0.8))
PEAK = 4.0
"""Requests per second that the prefill of `surge` can do: 2,500 tokens each in the mean, at 0.1 ms."""


def surge(seed: int, told: Rules) -> list[Fate]:
    """80 %, 200 %, 80 % of what a pair can do; Poisson arrivals; 3 s to the first token."""
    source = random.Random(seed)
    asks = []
    for begin, end, part in PHASES:
        now = begin + source.expovariate(part * PEAK)
        while now < end:
            tokens = int(2500 * source.uniform(0.4, 1.6))
            asks.append(Ask(now, tokens, hold_s=0.5, budget_s=3.0, workload_class=LONG))
            now += source.expovariate(part * PEAK)
    return run(told, asks, Prefill(1e-4))


def surged() -> list[str]:
    rows = []
    sides = (
        ("fixed at 64", rules(64, 256, adaptive=False)),
        ("adaptive, 2 to 64", rules(64, 256, min_in_flight=2, adaptive=True)),
    )
    for name, told in sides:
        goodput: list[list[float]] = [[], [], []]
        early, late = [], []
        for seed in SEEDS:
            fates = surge(seed, told)
            for phase, (begin, end, _) in enumerate(PHASES):
                mine = [fate for fate in fates if begin <= fate.ask.at < end]
                goodput[phase].append(sum(fate.good for fate in mine) / (end - begin))
            bad = [fate for fate in fates if not fate.good]
            early.append(sum(fate.refused is not None for fate in bad))
            late.append(sum(fate.timed_out for fate in bad))
        cells = " | ".join(middle(values, ".2f") for values in goodput)
        rows.append(f"| {name} | {cells} | {middle(early, '.0f')} | {middle(late, '.0f')} |")
    return rows


def page() -> str:
    return "\n".join(
        [
            "# Who goes first, and how many at once: in virtual time",
            "",
            f"`benchmarks/schedule/priority.py`: the gateway's own scheduler over the same arrivals, median (least to largest) of {len(SEEDS)}",
            "seeds. No clock is read: every machine writes this page. The engines are models, so read ratios, not seconds.",
            "",
            "## A flood of long requests",
            "",
            "8 slots; long requests of 2 s (1 to 3) at the given part of what the slots can do for 60 s, text requests of 0.2 s at a",
            "twentieth of it throughout; nobody has a deadline.",
            "",
            "| long load | | first in, first out | priority | |",
            "|---|---|---|---|---|",
            *flooded(0.9),
            *flooded(1.25),
            *flooded(1.5),
            "",
            "## The same with a promise",
            "",
            "The first token within 3 s, in % of the requests; who could not make it is refused (429) before its time is over, the",
            "rest of the failures are 504.",
            "",
            "| long load | order | short in time | long in time | 429 early | 504 |",
            "|---|---|---|---|---|---|",
            *promised(1.25),
            *promised(1.5),
            "",
            "## Twice the load at once",
            "",
            f"A pair whose prefill computes one prompt after the other, {PEAK:.0f} a second; 80 % of that for 30 s, 200 % for 30 s, 80 % for 60 s;",
            "3 s to the first token. Good requests per second, by when they came; then how many failed how.",
            "",
            "| in-flight limit | at 80 % (3.2/s) | at 200 % (8/s; 4/s can be served) | at 80 % again | 429 early | 504 |",
            "|---|---|---|---|---|---|",
            *surged(),
            "",
        ]
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(page())
