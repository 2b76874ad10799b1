"""An image is prepared once: for all who ask at once, and for those who ask later."""

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from serving.access.fetch import Fetcher
from serving.access.grids import QwenGrid, TextGrid
from serving.access.picture import Task
from serving.access.prepare import REFUSAL_S, Access
from serving.access.recipe import recipe
from serving.access.workers import DecodePool, Made
from serving.config import AccessConfig
from tests.serving.access import pictures
from tests.serving.access.pictures import saved
from tests.serving.access.test_data_uri import data_uri
from tests.serving.access.web import Server, listening, nowhere, reply
from toolkit.core import names
from toolkit.core.clock import VirtualClock
from toolkit.core.errors import InvalidRequest, OutOfTime
from toolkit.core.names import Metric

GRID = QwenGrid("qwen2_vl", 28, 56 * 56, 1280 * 28 * 28)
PHOTO = saved(pictures.photo(), "JPEG")
ARROW = saved(pictures.arrow(), "PNG")


class Bench:
    """An access layer with everything real; counts what it does. `answer` is what its loopback server says."""

    access: Access

    def __init__(self, pool: "CountingPool", server: Server, clock: VirtualClock) -> None:
        self.pool = pool
        self.server = server
        self.clock = clock
        self.events: Counter[str] = Counter()

    def count(self, metric: Metric, amount: float = 1.0, **labels: str) -> None:
        assert set(labels) == set(metric.labels)
        kind = "url " if metric is names.IMAGE_URLS else ""
        self.events[kind + labels["result"]] += int(amount)

    def gauge(self, metric: Metric, value: float, **labels: str) -> None:
        assert set(labels) == set(metric.labels)

    def observe(self, metric: Metric, value: float, **labels: str) -> None:
        assert set(labels) == set(metric.labels)

    async def ask(self, *urls: str, within_s: float = 30.0) -> list[str]:
        """The data URIs of one request's images."""
        prepared = await self.access.prepare(urls, self.clock.monotonic() + within_s)
        return [image.data_uri for image in prepared.images]


class CountingPool(DecodePool):
    """Counts what reaches a worker."""

    def __init__(self, config: AccessConfig, clock: VirtualClock) -> None:
        super().__init__(config, clock)
        self.decodes = 0
        self.chores: Counter[str] = Counter()

    async def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.chores[function.__name__] += 1
        return await super().run(function, *args, **kwargs)

    async def run_on(self, size_bytes: int, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.chores[function.__name__] += 1
        return await super().run_on(size_bytes, function, *args, **kwargs)

    async def make(self, data: bytes, task: Task, deadline: float, begin: Callable[[], None]) -> Made:
        def counted() -> None:
            self.decodes += 1
            begin()

        return await super().make(data, task, deadline, counted)


def run(
    scenario: Callable[[Bench], Awaitable[None]],
    answer: Callable[[str], bytes | None] = lambda _: None,
    grid: Any = GRID,
    **config: Any,
) -> None:
    async def main() -> None:
        server, clock = Server(answer), VirtualClock()
        async with listening([server]):
            limits = AccessConfig(allowed_hosts=(f"127.0.0.1:{server.port}",), **config)
            pool = CountingPool(limits, clock)
            fetcher = Fetcher(limits, pool, clock, resolve=nowhere)
            bench = Bench(pool, server, clock)
            access = bench.access = Access(limits, grid, fetcher, pool, clock, bench)
            try:
                await scenario(bench)
            finally:
                await access.close()
                assert not (len(access._preparing) or len(access._reading))
                access._held.check()

    asyncio.run(main())


def test_a_hundred_at_once_are_one_decode() -> None:
    """Whoever else asks meanwhile waits for it; whoever asks later finds it."""

    async def scenario(bench: Bench) -> None:
        uris = await asyncio.gather(*(bench.ask(data_uri(PHOTO)) for _ in range(100)))
        assert len({uri for (uri,) in uris}) == 1
        assert bench.pool.decodes == 1
        assert bench.events == {"miss": 1, "wait": 99}

        assert await bench.ask(data_uri(PHOTO)) == uris[0]
        assert (bench.pool.decodes, bench.events["hit"]) == (1, 1)

    run(scenario, max_queued_images=1)


def test_a_hundred_at_once_by_url_are_one_download() -> None:
    """Also where the server allows nothing to be kept: it is the same answer to the same question."""

    async def scenario(bench: Bench) -> None:
        await asyncio.gather(*(bench.ask(bench.server.url()) for _ in range(100)))

        assert (len(bench.server.requests), bench.pool.decodes) == (1, 1)
        assert bench.events["url joined"] == 99

    run(scenario, lambda _: reply(200, PHOTO, "Cache-Control: no-store"))


def test_a_hundred_large_ones_at_once_are_read_once_too() -> None:
    """They do not fill the queue that would refuse them; one that differs anywhere is another."""

    async def scenario(bench: Bench) -> None:
        whole = PHOTO + bytes(400_000)
        odd = bytearray(whole)
        odd[len(odd) // 3] ^= 1
        answers = await asyncio.gather(
            *(bench.ask(data_uri(whole)) for _ in range(100)), bench.ask(data_uri(bytes(odd)))
        )

        assert len(answers) == 101
        assert bench.pool.chores == {"decode": 2, "examine": 2}
        assert bench.pool.decodes == 2
        assert bench.events == {"miss": 2, "wait": 99}

    run(scenario, max_queued_images=2, workers=1)


def test_the_same_bytes_by_url_and_as_data_are_one_image() -> None:
    """The record still says how this request sent it."""

    async def scenario(bench: Bench) -> None:
        far = bench.clock.monotonic() + 30
        one = await bench.access.prepare([bench.server.url()], far)
        other = await bench.access.prepare([data_uri(PHOTO)], far)

        assert one.images[0].data_uri is other.images[0].data_uri
        assert [found.images[0].record.origin for found in (one, other)] == ["url", "data"]
        assert bench.pool.decodes == 1

    run(scenario, lambda _: reply(200, PHOTO))


def test_large_files_are_hashed_on_the_pool() -> None:
    """Two files that differ in their last byte are two images."""

    async def scenario(bench: Bench) -> None:
        tail = bytes(400_000)
        await bench.ask(data_uri(PHOTO + tail + b"a"), data_uri(PHOTO + tail + b"b"))
        await bench.ask(data_uri(PHOTO + tail + b"a"))

        assert bench.events == {"miss": 2, "hit": 1}

    run(scenario)


def test_text_never_comes_near() -> None:
    """Nothing is counted, kept or started for a request without images."""

    async def scenario(bench: Bench) -> None:
        assert await bench.ask() == []

        assert (bench.events, bench.access.held_images, bench.pool.decodes) == (Counter(), 0, 0)

    run(scenario, grid=TextGrid())


def test_zero_keeps_nothing() -> None:
    """Only requests at the same time share."""

    async def scenario(bench: Bench) -> None:
        await asyncio.gather(bench.ask(bench.server.url()), bench.ask(bench.server.url()))
        await bench.ask(bench.server.url())

        assert (bench.pool.decodes, len(bench.server.requests)) == (2, 2)
        assert (bench.access.held_images, bench.access.held_bytes) == (0, 0)

    run(scenario, lambda _: reply(200, PHOTO, "Cache-Control: max-age=60"), cache_mb=0)


def test_memory_is_counted_as_it_is_and_bounded() -> None:
    """The string that travels, for each image."""
    images = [saved(pictures.photo(300 + 28 * step, 300), "PNG") for step in range(8)]

    async def scenario(bench: Bench) -> None:
        ((first,), *_) = [await bench.ask(data_uri(image)) for image in images[:1]]
        assert len(first) < bench.access.held_bytes < len(first) + 2000
        for image in images:
            await bench.ask(data_uri(image))
            assert bench.access.held_bytes <= 1_000_000
        assert 1 < bench.access.held_images < len(images)

    run(scenario, cache_mb=1, handover="png")


def test_one_waiter_leaves_and_the_other_has_its_image() -> None:
    """Cancelled or out of time: the decode is not theirs alone. When nobody is left it never starts."""

    async def scenario(bench: Bench) -> None:
        gate = threading.Event()
        blocker = asyncio.create_task(bench.pool.run(gate.wait))
        try:
            first, second = (asyncio.create_task(bench.ask(data_uri(ARROW))) for _ in range(2))
            lonely = asyncio.create_task(bench.ask(data_uri(PHOTO)))
            while bench.pool.queued < 2:
                await asyncio.sleep(0)
            first.cancel()
            lonely.cancel()
            with pytest.raises(OutOfTime):
                await bench.ask(data_uri(ARROW), within_s=0.0)
            await asyncio.wait([first, lonely])
            assert bench.pool.queued == 1
        finally:
            gate.set()

        assert len(await second) == 1
        await blocker
        assert bench.pool.decodes == 1

    run(scenario, workers=1)


def test_a_refusal_is_told_to_all_and_remembered_for_a_while() -> None:
    """A cut-off file costs one look, then none, until its time is over; each is told about its own image."""

    async def scenario(bench: Bench) -> None:
        broken = data_uri(PHOTO[:-5000])
        answers = await asyncio.gather(
            *(bench.ask(broken) for _ in range(5)), bench.ask(data_uri(ARROW), broken), return_exceptions=True
        )
        assert all(isinstance(answer, InvalidRequest) for answer in answers)
        assert str(answers[0]).startswith("image 1 of 1: ")
        assert str(answers[5]).startswith("image 2 of 2: ")
        with pytest.raises(InvalidRequest, match=r"^image 1 of 1: the JPEG .*cut off") as caught:
            await bench.ask(broken)
        assert caught.value.code.code == "image_invalid"
        before = bench.pool.chores["examine"]
        bench.clock.advance(REFUSAL_S)
        with pytest.raises(InvalidRequest):
            await bench.ask(broken)
        assert bench.pool.chores["examine"] == before + 1

    run(scenario)


def test_other_failures_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of ours says nothing about the image."""

    async def scenario(bench: Bench) -> None:
        def broken(*_: object) -> None:
            raise MemoryError

        with monkeypatch.context() as patch:
            patch.setattr("serving.access.picture.probe", broken)
            failures = await asyncio.gather(
                *(bench.ask(data_uri(ARROW)) for _ in range(3)), return_exceptions=True
            )
            assert [type(failure) for failure in failures] == [MemoryError] * 3
        assert len(await bench.ask(data_uri(ARROW))) == 1

    run(scenario)


def test_what_is_made_differently_is_never_mixed() -> None:
    """Handover, limits and the model's bounds are part of the key; how many threads there are is not."""
    base = AccessConfig()
    keys = [
        recipe(base, GRID),
        recipe(AccessConfig(handover="jpeg"), GRID),
        recipe(AccessConfig(max_image_pixels=1000), GRID),
        recipe(base, QwenGrid("qwen2_vl", 28, 56 * 56, 1281 * 28 * 28)),
        recipe(base, QwenGrid("qwen3_vl", 32, 56 * 56, 1280 * 28 * 28)),
    ]

    assert len(set(keys)) == len(keys)
    assert recipe(AccessConfig(workers=7, cache_mb=1), GRID) == keys[0]
