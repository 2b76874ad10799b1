"""Which prefill gets a request: by load alone, and by what a prefill has cached, within a bound: in virtual time.

    .venv/bin/python benchmarks/schedule/affinity.py

Both sides are the gateway's own pair book over the same arrivals and modelled prefills (tests/serving/prefills.py). Writes
benchmarks/results/schedule-affinity.md; the same figures on every machine.
"""

import statistics
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.serving.prefills import CACHE_TOKENS, Ask, Result, conversations, documents, images, run

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "benchmarks" / "results" / "schedule-affinity.md"
SEEDS, SECONDS, PREFILLS = range(5), 60.0, 4
BOUNDS = (None, 1.0, 1.25, 2.0)

CASES: dict[str, Callable[[int], list[Ask]]] = {
    "400 images, some often (Zipf), 40/s": lambda seed: images(seed, 40, SECONDS, 400),
    "the same, 10/s": lambda seed: images(seed, 10, SECONDS, 400),
    "conversations of six turns, 25/s": lambda seed: conversations(seed, 25, SECONDS),
    "30 beginnings of 6,000 tokens, 15/s": lambda seed: documents(seed, 15, SECONDS, 30),
    "one beginning for all, 60/s": lambda seed: documents(seed, 60, SECONDS, 1),
    "each image once, 35/s": lambda seed: images(seed, 35, SECONDS, 0),
    "each image once, 15/s": lambda seed: images(seed, 15, SECONDS, 0),
}


def row(what: str, bound: float | None, runs: list[Result]) -> str:
    def middle(value: Callable[[Result], float]) -> float:
        return statistics.median(map(value, runs))

    return (
        f"| {what} | {'load alone' if bound is None else f'bound {bound:g}'} | {middle(lambda r: r.hit_share):.0%} |"
        f" {1e3 * middle(lambda r: r.wait_s(0.5)):.0f} | {1e3 * middle(lambda r: r.wait_s(0.95)):.0f} |"
        f" {middle(lambda r: r.spread):.2f} | {middle(lambda r: r.by['spill'] / sum(r.by.values())):.0%} |"
    )


def page() -> str:
    rows = []
    for what, make in CASES.items():
        asks = [make(seed) for seed in SEEDS]
        for bound in BOUNDS:
            rows.append(
                row("" if rows and bound else what, bound, [run(one, PREFILLS, bound) for one in asks])
            )
    return "\n".join(
        [
            "# Which prefill: by load alone, or by what it has cached",
            "",
            f"`benchmarks/schedule/affinity.py`: {PREFILLS} prefills (H100-like costs, serving/engines/simulated/model.py), each",
            f"keeping the last {CACHE_TOKENS:,} tokens of prompts; {SECONDS:.0f} s of Poisson arrivals; medians of {len(SEEDS)} seeds. No clock is",
            "read: every machine writes this page. Hit: part of the images', beginnings' and histories' tokens that were cached",
            "where they came; p50, p95: arrival to the end of the prefill, ms; most work: of one prefill, beside the mean; spill:",
            "to another than the key's first, as that was too full.",
            "",
            "| asked | prefill by | hit | p50 | p95 | most work | spill |",
            "|---|---|---|---|---|---|---|",
            *rows,
            "",
            "Where things come again, more is cached and the wait is shorter; where nothing does, they are within a tenth, as a key that was",
            "not seen yet waits behind nobody. It costs where all prefills have everything anyway (one beginning for all): the first",
            "of the key's order is filled to the bound before the next is used. The default is 1.25; with one prefill nothing changes.",
            "",
        ]
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE.read_text(encoding="utf-8"))
