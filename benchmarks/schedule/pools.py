"""A flood of pictures beside texts that want half of the decodes, with and without pools: in virtual time.

    .venv/bin/python benchmarks/schedule/pools.py

The gateway's own scheduler over the same arrivals. Writes benchmarks/results/schedule-pools.md; the same figures on every machine.
"""

import random
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from serving.schedule.priority import Rules
from tests.serving.schedule.virtual import Ask, Fate, fifo, p95, rules, run
from toolkit.core.sample import WorkloadClass

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "benchmarks" / "results" / "schedule-pools.md"
SEEDS, WINDOW_S, SLOTS, BUDGET_S = range(5), 40.0, 16, 3.0
TEXT, IMAGE = WorkloadClass.TEXT_ONLY, WorkloadClass.HIGH_RES
KINDS = {TEXT: "words", IMAGE: "pictures"}
ORDERS: dict[str, Rules] = {
    "first in, first out": fifo(SLOTS, max_waiting=256),
    "priority": rules(SLOTS, max_waiting=256, workload_share=0.5),
    "priority, pools 1 : 1": rules(
        SLOTS, max_waiting=256, workload_share=0.5, kinds=KINDS, shares={"words": 1.0, "pictures": 1.0}
    ),
}


def asks(seed: int, flood: float) -> list[Ask]:
    """Long texts that take 0.4 of all slots throughout, and pictures that ask for `flood` of all slots; 2,000 tokens and 1 s each."""
    source, made = random.Random(seed), []
    for kind, part in ((TEXT, 0.4), (IMAGE, flood)):
        at = source.expovariate(part * SLOTS)
        while at < WINDOW_S:
            hold_s = source.uniform(0.5, 1.5)
            made.append(
                Ask(
                    at,
                    int(2000 * source.uniform(0.8, 1.2)),
                    hold_s,
                    hold_s / 5,
                    BUDGET_S,
                    workload_class=kind,
                )
            )
            at += source.expovariate(part * SLOTS)
    return sorted(made, key=lambda ask: ask.at)


def row(flood: float, name: str, told: Rules) -> str:
    runs = [run(told, asks(seed, flood)) for seed in SEEDS]

    def of(fates: list[Fate], kind: WorkloadClass) -> list[Fate]:
        return [fate for fate in fates if fate.ask.workload_class is kind]

    def good(kind: WorkloadClass) -> float:
        return statistics.median(statistics.fmean(f.good for f in of(fates, kind)) for fates in runs)

    ttft = statistics.median(
        p95([fate.first - fate.ask.at for fate in of(fates, TEXT) if fate.first is not None])
        for fates in runs
    )
    used = statistics.median(
        sum(fate.ask.hold_s for fate in fates if fate.entered is not None) / (SLOTS * WINDOW_S)
        for fates in runs
    )
    return f"| {flood:.1f} | {name} | {good(TEXT):.0%} | {ttft:.2f} | {good(IMAGE):.0%} | {used:.0%} |"


def page() -> str:
    rows = [row(flood, name, told) for flood in (0.4, 1.0, 3.0) for name, told in ORDERS.items()]
    return "\n".join(
        [
            "# A flood of one kind, with and without pools",
            "",
            f"`benchmarks/schedule/pools.py`: {SLOTS} slots; texts that want 0.4 of them for {WINDOW_S:.0f} s beside pictures that want as much",
            f"as the first column says; all of one length and one SLO class, {BUDGET_S:.0f} s to the first token; medians of {len(SEEDS)} seeds. No clock is",
            "read: every machine writes this page. In time: of all that were asked; p95: of the texts' first tokens, s; used: of the",
            "slots (above 100 %: the last ones end after the window).",
            "",
            "| pictures | order | texts in time | texts p95 | pictures in time | used |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE.read_text(encoding="utf-8"))
