"""What a cap on KV leases does to whom, by the gateway's own scheduler, in virtual time.

    .venv/bin/python benchmarks/schedule/leases.py

The same arrivals under each cap. Writes benchmarks/results/schedule-leases.md; the same figures on every machine.
"""

import random
import statistics
import sys
from itertools import accumulate
from math import inf
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.schedule.priority import middle
from tests.serving.schedule.virtual import Ask, Fate, p95, pool, rules, run
from toolkit.core.sample import WorkloadClass

PAGE = Path(__file__).resolve().parents[1] / "results" / "schedule-leases.md"
POOL, PAGES = 32_768, 16
SLOTS = 64
SEEDS = range(5)
WINDOW_S = 60.0
CAPS = (0.30, 0.15, 0.08)
SHORT, LONG = WorkloadClass.TEXT_ONLY, WorkloadClass.MULTI_IMAGE_LONG


def one(source: random.Random, at: float, tail: float) -> Ask:
    """Two in three are short. A long one holds 4 to 11 % of the pool; of those, `tail` hold 15 to 29 %."""
    if source.random() < 0.65:
        return Ask(at, source.randint(100, 400), source.uniform(0.2, 0.6), 0.06, 10.0)
    part = source.uniform(0.15, 0.29) if source.random() < tail else source.uniform(0.04, 0.11)
    tokens = int(part * POOL)
    return Ask(at, tokens, source.uniform(1.5, 3.0), 0.05 + 2e-5 * tokens, 20.0, workload_class=LONG)


def arrivals(seed: int, load: float, tail: float) -> list[Ask]:
    """Poisson; `load`: tokens x seconds that they ask for, of what the pool has."""
    source = random.Random(99)
    sizes = [one(source, 0.0, tail) for _ in range(5000)]
    rate = load * POOL / statistics.mean(ask.tokens * ask.hold_s for ask in sizes)
    source, now, asks = random.Random(seed), 0.0, []
    while now < WINDOW_S:
        now += source.expovariate(rate)
        asks.append(one(source, now, tail))
    return asks


def inside(fates: list[Fate]) -> int:
    """Most at once."""
    moves = [(fate.entered, 1) for fate in fates if fate.entered is not None]
    moves += [(fate.ended, -1) for fate in fates if fate.ended is not None]
    return max(accumulate(step for _, step in sorted(moves)))


def figures(fates: list[Fate]) -> dict[str, float]:
    assert inside(fates) < SLOTS / 2, "slots bind"
    short = [fate for fate in fates if fate.ask.workload_class is SHORT]
    long = [fate for fate in fates if fate.ask.workload_class is LONG]
    entered = [fate for fate in long if fate.entered is not None]
    over = [
        fate for fate in long if fate.refused is not None and fate.refused.code.code == "kv_lease_exceeded"
    ]
    return {
        "short": p95([inf if fate.first is None else fate.first - fate.ask.at for fate in short]),
        "done": 100 * sum(fate.ended is not None for fate in long) / len(long),
        "over": 100 * len(over) / len(long),
        "lacked": 100 * sum(fate.lacked_s > 0 for fate in entered) / len(entered),
        "wait": p95([fate.wait_s for fate in entered]),
    }


def rows(load: float, tail: float) -> list[str]:
    lines = []
    before: list[float] = []
    for cap in CAPS:
        told = rules(SLOTS, lease_cap=cap)
        found = [
            figures(run(told, arrivals(seed, load, tail), decodes={"decode-0": pool(POOL, PAGES)}))
            for seed in SEEDS
        ]
        of = {name: [one[name] for one in found] for name in found[0]}
        better = [a / b for a, b in zip(before, of["short"], strict=True)] if before else []
        before = of["short"]
        lines.append(
            f"| {cap:.0%} | {middle(of['done'], '.1f')} | {middle(of['over'], '.1f')} | {middle(of['short'], '.2f')}"
            f" | {middle(better, '.1f') + ' x better' if better else ''} | {middle(of['lacked'], '.0f')} | {middle(of['wait'], '.1f')} |"
        )
    return lines


def page() -> str:
    lines = [
        "# What a cap on KV leases does to whom: in virtual time",
        "",
        f"`benchmarks/schedule/leases.py`: the gateway's own scheduler over the same arrivals, median (least to largest) of {len(SEEDS)} seeds.",
        f"One decode with {POOL} tokens in pages of {PAGES} and {SLOTS} slots, more than are ever taken: KV is what lacks. Two in three requests are",
        "short (100 to 400 tokens for 0.4 s, 10 s to the first), the others hold 4 to 11 % of the pool for 2 s (20 s to the first), and a few of",
        "them 15 to 29 %. Engines are models: read ratios. Which cap a load of your own wants: `toolkit experiment lease-cap`.",
        "",
    ]
    for load, tail in ((0.9, 0.03), (0.9, 0.1), (1.1, 0.03), (1.1, 0.1)):
        lines += [
            f"## {load:.0%} of the pool asked for, {tail:.0%} of the long ones very long",
            "",
            "| cap | long ones served, % | over the cap (413), % | short TTFT P95, s | than the row above | long ones that waited for KV, % | their wait P95, s |",
            "|---|---|---|---|---|---|---|",
            *rows(load, tail),
            "",
        ]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
