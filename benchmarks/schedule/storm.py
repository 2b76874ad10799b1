"""A retry storm: a fifth of all transfers fail, then prefill stands still for 4 s. Who comes back, and after how much work?

    .venv/bin/python -m benchmarks.schedule.storm [--engine simulated] [--rate 4]

One prefill and two decodes behind the gateway with its defaults; then a naive front, which retries at once, before the same
engines, with the same arrivals and the same faults. Failures are made by SGLang's own hook, SGLANG_TEST_DISAGG_FAILURE_PROB,
tuned until a fifth of single attempts fails (it is drawn at every poll), and by SIGSTOP. Then a gateway that knows one pair
alone, whose session SGLang blacklists after a failed transfer. Six minutes; writes benchmarks/results/schedule-storm.md
(with --engine simulated only below --work). Exit code 1 when a bound is not kept.
"""

import argparse
import asyncio
import math
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.schedule.services import asked, attached, wait_for_pairs
from benchmarks.schedule.storm_load import Naive, Shot, Through, Way, load, with_attempts
from benchmarks.schedule.storm_page import Measured, Run, page
from benchmarks.schedule.storm_stand import Stand, stand
from serving.attempt import Pair

PAGE = Path(__file__).resolve().parents[1] / "results" / "schedule-storm.md"
SHARE = 0.2
"""Of single attempts that fail while the hook is on."""
CALM_S, FREEZE_AT_S, FREEZE_S, END_S, LAST_S = 20.0, 30.0, 4.0, 40.0, 85.0
"""From the load's begin: the hook goes on; prefill stops, for so long; the hook goes off; the last request."""
BREAK_S, BREAK_FOR_S, ONE_LAST_S = 10.0, 2.0, 75.0
"""With one pair: transfers fail, for so long; the last request."""
TUNED_WITH, AT_ONCE = 60, 3

Struck = Callable[[], None]


async def befall(*what: tuple[float, Struck]) -> None:
    """Each at its second."""
    began = time.monotonic()
    for at_s, strike in what:
        await asyncio.sleep(began + at_s - time.monotonic())
        await asyncio.to_thread(strike)


async def under(way: Way, rate: float, seconds: float, *what: tuple[float, Struck]) -> list[Shot]:
    async with asyncio.TaskGroup() as group:
        group.create_task(befall(*what))
        shots = group.create_task(load(way, rate, seconds, seed=1))
    return shots.result()


def failing(on: Stand, polls: float) -> float:
    """The share of single attempts that fail while a poll fails with that probability."""

    async def all_of_them() -> float:
        way = Naive(on.service.model_name, pairs(on), tries=1, try_s=10.0)
        turn = asyncio.Semaphore(AT_ONCE)

        async def one(number: int) -> bool:
            async with turn:
                return (await way.ask(number, 0.0, time.monotonic())).ttft_s is None

        failed = await asyncio.gather(*(one(number) for number in range(TUNED_WITH)))
        await way.client.close()
        return sum(failed) / len(failed)

    on.fail(polls=polls)
    try:
        return asyncio.run(all_of_them())
    finally:
        on.fail()


def tuned(on: Stand) -> tuple[float, float]:
    """A probability with which about SHARE of single attempts fail, and the share that did. An attempt polled k times fails with
    1 - (1 - p)^k; k differs widely, so that the share answers less than that: hence the 1.5."""
    polls, best = (0.2 if on.simulated else 0.03), (0.0, 1.0)
    for _ in range(6):
        share = failing(on, polls)
        print(f"polls fail with {polls:.2g}: {share:.0%} of attempts fail", file=sys.stderr)
        if abs(share - SHARE) < abs(best[1] - SHARE):
            best = polls, share
        if abs(share - SHARE) <= 0.05:
            break
        seen = min(max(share, 0.02), 0.95)
        polls = 1 - (1 - polls) ** ((math.log(1 - SHARE) / math.log(1 - seen)) ** 1.5)
    return best


def pairs(on: Stand) -> list[Pair]:
    return [Pair(on.prefill, decode) for decode in on.service.decodes]


def storm(on: Stand, way: Way, rate: float, polls: float) -> list[Shot]:
    return asyncio.run(
        under(
            way,
            rate,
            LAST_S,
            (CALM_S, lambda: on.fail(polls=polls)),
            (FREEZE_AT_S, lambda: on.signal_prefill(signal.SIGSTOP)),
            (FREEZE_AT_S + FREEZE_S, lambda: on.signal_prefill(signal.SIGCONT)),
            (END_S, on.fail),
        )
    )


def measure(work: Path, kind: str, rate: float) -> Measured:
    with stand(work, kind) as on:
        name = on.service.model_name
        asyncio.run(load(Through(name, on.front.url), rate, 8.0, seed=2))  # what is loaded lazily is loaded
        polls, share = tuned(on)
        wait_for_pairs(on.front.url, 2)
        ours = storm(on, Through(name, on.front.url), rate, polls)
        ours = with_attempts(ours, on.front.journal)
        wait_for_pairs(on.front.url, 2)
        naive = storm(on, Naive(name, pairs(on)), rate, polls)
        wait_for_pairs(on.front.url, 2)
        time.sleep(10)
        with attached(work, on.service) as front:
            alone = asyncio.run(
                under(
                    Through(name, front.url),
                    rate,
                    ONE_LAST_S,
                    (BREAK_S, lambda: on.fail(transfers=True)),
                    (BREAK_S + BREAK_FOR_S, on.fail),
                )
            )
            alone = with_attempts(alone, front.journal)
        return Measured(polls, share, ours, naive, alone, on.simulated)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", type=float, default=4.0, help="requests per second")
    options, work = asked(parser, "storm")
    began, before = time.monotonic(), os.getloadavg()[0]
    found = measure(work, options.engine, options.rate)
    run = Run(
        options.rate,
        time.monotonic() - began,
        (before, os.getloadavg()[0]),
        (CALM_S, FREEZE_AT_S, FREEZE_S, END_S, LAST_S),
        (BREAK_S, BREAK_FOR_S),
    )
    text, broken = page(found, run)
    (work / PAGE.name).write_text(text, encoding="utf-8")
    if not found.simulated:
        PAGE.write_text(text, encoding="utf-8")
    print(text)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
