"""Places for downloads: bounded in all and per host, in turn by host."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from serving.access.turns import WAITING_PER_PLACE, Turns
from toolkit.core.errors import Busy


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(scenario())  # type: ignore[arg-type]


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_host_fills_its_own_places_only() -> None:
    """The third of the slow host waits; the quick one walks past it."""

    async def scenario() -> None:
        turns = Turns(4, 2)
        await turns.take("slow")
        await turns.take("slow")
        third = asyncio.create_task(turns.take("slow"))
        await settle()
        await turns.take("quick")
        assert (turns.running, turns.waiting, third.done()) == (3, 1, False)

        turns.give_back("slow")
        await third
        assert (turns.running, turns.waiting) == (3, 0)
        turns.check()

    run(scenario)


def test_hosts_take_turns_when_all_places_are_taken() -> None:
    """A long line does not hold up a short one, whichever came first."""

    async def scenario() -> None:
        turns, order = Turns(1, 1), []
        await turns.take("first")

        async def one(host: str) -> None:
            await turns.take(host)
            order.append(host)
            turns.give_back(host)

        tasks = [asyncio.create_task(one(host)) for host in ["long"] * 3 + ["a", "b"]]
        await settle()
        turns.give_back("first")
        await asyncio.gather(*tasks)
        assert order == ["long", "a", "b", "long", "long"]
        assert (turns.running, turns.waiting) == (0, 0)
        turns.check()

    run(scenario)


def test_a_line_has_an_end() -> None:
    """Whoever would wait behind too many is refused at once; other hosts are not."""

    async def scenario() -> None:
        turns = Turns(2, 1)
        await turns.take("slow")
        line = [asyncio.create_task(turns.take("slow")) for _ in range(WAITING_PER_PLACE)]
        await settle()
        with pytest.raises(Busy, match="4 images from that host wait") as caught:
            await turns.take("slow")
        assert (caught.value.code.code, caught.value.status, caught.value.retry_after_s) == (
            "queue_full",
            429,
            1.0,
        )
        await turns.take("quick")
        for task in line:
            task.cancel()
        await asyncio.gather(*line, return_exceptions=True)
        turns.check()

    run(scenario)


def test_who_leaves_the_line_passes_its_turn_on() -> None:
    """Cancelled while it waits, or in the moment in which it was its turn."""

    async def scenario() -> None:
        turns = Turns(1, 1)
        await turns.take("a")
        waiting = [asyncio.create_task(turns.take("a")) for _ in range(3)]
        await settle()
        waiting[0].cancel()
        await settle()
        assert turns.waiting == 2
        turns.give_back("a")
        waiting[1].cancel()
        await waiting[2]
        assert (turns.running, turns.waiting) == (1, 0)
        turns.check()

    run(scenario)


def test_a_turn_that_comes_with_the_cancellation_goes_to_the_next() -> None:
    """The task is cancelled, and before it hears of it a place becomes free."""

    async def scenario() -> None:
        turns = Turns(1, 1)
        await turns.take("a")
        waiting = [asyncio.create_task(turns.take("a")) for _ in range(2)]
        await settle()
        waiting[0].cancel()
        turns.give_back("a")
        await waiting[1]
        assert (turns.running, turns.waiting) == (1, 0)
        turns.give_back("a")
        turns.check()
        assert (turns.running, turns.waiting) == (0, 0)

    run(scenario)


def test_counts_hold_whatever_happens() -> None:
    """Random arrivals, ends and cancellations: bounds kept, changes told, nothing left over."""

    async def scenario() -> None:
        draw, told = random.Random(4), []
        turns = Turns(5, 2, lambda running, waiting: told.append((running, waiting)))
        begun: list[str] = []

        async def one(host: str) -> None:
            await turns.take(host)
            begun.append(host)

        tasks: list[asyncio.Task[None]] = []
        for _ in range(2000):
            choice = draw.random()
            if choice < 0.5:
                tasks.append(asyncio.create_task(one(draw.choice("abcdef"))))
            elif choice < 0.7 and tasks:
                draw.choice(tasks).cancel()
            elif begun:
                turns.give_back(begun.pop(draw.randrange(len(begun))))
            if draw.random() < 0.5:
                await settle()
            turns.check()
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        for host in begun:
            turns.give_back(host)
        turns.check()

        assert (turns.running, turns.waiting) == told[-1] == (0, 0)
        assert max(running for running, _ in told) == 5
        assert {type(end) for end in ends} == {type(None), asyncio.CancelledError, Busy}

    run(scenario)
