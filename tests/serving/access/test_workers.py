"""The decode pool: bounded, in order, exact about what it holds."""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from PIL import Image

from serving.access.apart import Painter, Work
from serving.access.cost import cost_of
from serving.access.formats import Format
from serving.access.grids import QwenGrid
from serving.access.header import ImageHeader
from serving.access.paint import Painted
from serving.access.picture import examine
from serving.access.workers import DecodePool, LateError, Made
from serving.config import AccessConfig
from tests.serving.access import pictures
from tests.serving.access.pictures import saved
from toolkit.core.clock import VirtualClock
from toolkit.core.errors import Busy, OutOfTime, TooLarge


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


GRID = QwenGrid("qwen2_5_vl", 28, 56 * 56, 448 * 448)
SMALL = saved(pictures.arrow(), "PNG")
LARGE = saved(pictures.photo(4000, 3000), "JPEG", quality=60)
CLOCK = VirtualClock()


class Gated(Painter):
    """Stands in for a process that is busy until the gate opens."""

    def __init__(self, gate: threading.Event) -> None:
        super().__init__(0)
        self.gate = gate

    def paint(self, data: bytes, work: Work) -> Painted:
        self.gate.wait(5)
        return Painted(b"large", 0.2, 0.1, 0.01)


@asynccontextmanager
async def gated(**config: Any) -> AsyncIterator[tuple[DecodePool, threading.Event]]:
    """A pool whose heavy lane, of one, works only when the gate is open."""
    gate = threading.Event()
    pool = DecodePool(AccessConfig(workers=1, **config), CLOCK)
    pool._idle["heavy"] = deque([Gated(gate)])
    try:
        yield pool, gate
    finally:
        gate.set()
        await settled(pool, 0, 0)
        pool.close()


def made(pool: DecodePool, data: bytes, within_s: float = 60.0) -> Coroutine[Any, Any, Made]:
    task = examine(data, pool._config, GRID)
    return pool.make(data, task, CLOCK.monotonic() + within_s, lambda: None)


def test_small_images_never_wait_behind_large_ones() -> None:
    """With the heavy lane full and more in its line, a small image and a chore go by."""

    async def scenario() -> None:
        async with gated() as (pool, gate):
            large = [asyncio.create_task(made(pool, LARGE)) for _ in range(3)]
            await settled(pool, 1, 2)
            small = await made(pool, SMALL)
            assert (small.lane, await pool.run(pow, 2, 3)) == ("light", 8)
            assert pool.queued == 2
            gate.set()
            assert {one.lane for one in await asyncio.gather(*large)} == {"heavy"}

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("kind", "size", "lane"),
    [
        ("JPEG", (1920, 1080), "light"),
        ("JPEG", (8000, 6000), "heavy"),
        ("PNG", (640, 480), "light"),
        ("PNG", (4000, 3000), "heavy"),
        ("WEBP", (640, 480), "apart"),
        ("AVIF", (640, 480), "apart"),
        ("AVIF", (4000, 3000), "heavy"),
    ],
)
def test_the_lane_is_the_headers(kind: str, size: tuple[int, int], lane: str) -> None:
    """Large ones, and those whose work does not show, decode where they can be killed."""
    pool = DecodePool(AccessConfig(workers=2), CLOCK)
    header = ImageHeader(cast("Format", kind), *size, 1, "RGB", False, 500_000, 1, size[0] * size[1] // 32)
    assert pool.lane_of(header, cost_of(header, (448, 336))) == lane
    pool.close()


def test_an_image_over_its_share_of_memory_is_told_the_sum() -> None:
    async def scenario() -> None:
        async with gated(memory_mb=60, cache_mb=0, max_image_bytes=1_000_000) as (pool, _):
            with pytest.raises(TooLarge, match=r"takes \d+ MB of memory; images may take 27 MB") as caught:
                await made(pool, saved(Image.new("RGB", (4000, 3000)), "PNG"))
            assert caught.value.code.code == "image_too_large"

    asyncio.run(scenario())


def test_an_image_whose_scans_take_too_long_is_not_begun() -> None:
    """The estimate from the header is over the limit already."""

    async def scenario() -> None:
        async with gated(max_sos_markers=10_000) as (pool, _):
            with pytest.raises(
                TooLarge, match=r"about \d+\.\d s of CPU; the limit for its size is 3\.4 s"
            ) as caught:
                await made(pool, pictures.scan_bomb())
            assert caught.value.code.code == "image_too_costly"

    asyncio.run(scenario())


def test_who_would_come_too_late_is_told_at_once() -> None:
    """Behind work of a second or so, 50 ms cannot do; a minute can."""

    async def scenario() -> None:
        async with gated() as (pool, gate):
            large = [asyncio.create_task(made(pool, LARGE)) for _ in range(8)]
            await settled(pool, 1, 7)
            with pytest.raises(LateError) as caught:
                await made(pool, LARGE, within_s=0.05)
            assert caught.value.status == 429
            assert caught.value.retry_after_s >= 1
            gate.set()
            await asyncio.gather(*large)
            with pytest.raises(OutOfTime, match="are left") as hopeless:
                await made(pool, LARGE, within_s=0.001)
            assert hopeless.value.hop == "prepare"

    asyncio.run(scenario())
