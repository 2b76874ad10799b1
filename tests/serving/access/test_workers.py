"""The decode pool: bounded, in order, exact about what it holds."""

import asyncio
import threading

import pytest

from serving.access.workers import DecodePool
from serving.config import AccessConfig
from toolkit.core.clock import VirtualClock
from toolkit.core.errors import Busy


def pool_of(workers: int = 1, queue: int = 2) -> DecodePool:
    return DecodePool(AccessConfig(workers=workers, max_queued_images=queue), VirtualClock())


async def settled(pool: DecodePool, busy: int, queued: int) -> None:
    """Until the pool shows these gauges."""
    async with asyncio.timeout(5):
        while (pool.busy, pool.queued) != (busy, queued):
            await asyncio.sleep(0)


def test_result_and_error_come_back() -> None:
    """The caller gets what the function returned, or what it raised."""

    async def scenario() -> None:
        pool = pool_of()
        assert await pool.run(pow, 2, 10) == 1024
        with pytest.raises(ZeroDivisionError):
            await pool.run(divmod, 1, 0)
        await settled(pool, 0, 0)
        pool.close()

    asyncio.run(scenario())


def test_order_bound_and_gauges() -> None:
    """One works, two wait in order of arrival, the next is refused with a time to come back."""

    async def scenario() -> None:
        pool, gate, order = pool_of(), threading.Event(), []
        jobs = [asyncio.create_task(pool.run(gate.wait))]
        await settled(pool, 1, 0)
        jobs += [asyncio.create_task(pool.run(order.append, name)) for name in "ab"]
        await settled(pool, 1, 2)

        with pytest.raises(Busy) as caught:
            await pool.run(order.append, "c")
        gate.set()
        await asyncio.gather(*jobs)

        assert caught.value.code.code == "queue_full"
        assert caught.value.retry_after_s >= 1
        assert order == ["a", "b"]
        await settled(pool, 0, 0)
        pool.close()

    asyncio.run(scenario())


def test_cancelled_waiter_never_runs() -> None:
    """Who leaves the queue frees the place, and the function is not called."""

    async def scenario() -> None:
        pool, gate, order = pool_of(queue=1), threading.Event(), []
        first = asyncio.create_task(pool.run(gate.wait))
        await settled(pool, 1, 0)
        second = asyncio.create_task(pool.run(order.append, "gone"))
        await settled(pool, 1, 1)
        second.cancel()
        await settled(pool, 1, 0)
        third = asyncio.create_task(pool.run(order.append, "stays"))
        await settled(pool, 1, 1)
        gate.set()
        await asyncio.gather(first, third)

        assert second.cancelled()
        assert order == ["stays"]
        pool.close()

    asyncio.run(scenario())


def test_cancelled_caller_of_a_running_job_keeps_the_thread_counted() -> None:
    """A thread cannot be stopped: it stays busy until it is done, and the next job waits for it."""

    async def scenario() -> None:
        pool, gate, order = pool_of(), threading.Event(), []
        running = asyncio.create_task(pool.run(gate.wait))
        await settled(pool, 1, 0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        following = asyncio.create_task(pool.run(order.append, "next"))
        await settled(pool, 1, 1)

        assert order == []
        gate.set()
        await following
        assert order == ["next"]
        await settled(pool, 0, 0)
        pool.close()

    asyncio.run(scenario())


def test_turn_given_to_a_cancelled_waiter_is_passed_on() -> None:
    """Cancelled between getting its turn and waking, a waiter hands the thread to the next."""

    async def scenario() -> None:
        pool, gate = pool_of(), threading.Event()
        first = asyncio.create_task(pool.run(gate.wait))
        await settled(pool, 1, 0)
        second = asyncio.create_task(pool.run(pow, 1, 1))
        third = asyncio.create_task(pool.run(pow, 3, 2))
        await settled(pool, 1, 2)
        next(iter(pool._turns.values())).add_done_callback(lambda _: second.cancel())
        gate.set()

        assert await third == 9
        assert second.cancelled()
        await first
        await settled(pool, 0, 0)
        pool.close()

    asyncio.run(scenario())


def test_close_cancels_waiters() -> None:
    """Nobody waits for a pool that is gone, and closing twice is harmless."""

    async def scenario() -> None:
        pool, gate = pool_of(), threading.Event()
        running = asyncio.create_task(pool.run(gate.wait))
        await settled(pool, 1, 0)
        waiting = asyncio.create_task(pool.run(pow, 1, 1))
        await settled(pool, 1, 1)
        pool.close()
        pool.close()
        gate.set()

        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await running

    asyncio.run(scenario())
