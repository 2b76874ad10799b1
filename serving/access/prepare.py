"""From image URLs to pictures the engine keeps as they are: fetch, probe, decode, encode; all images at once."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import pybase64

from serving.access.decode import decode, encode
from serving.access.fetch import Fetcher
from serving.access.grid import ImageGrid
from serving.access.probe import probe
from serving.access.workers import DecodePool
from serving.config import AccessConfig
from toolkit.core.clock import Clock
from toolkit.core.errors import InvalidRequest, OutOfTime, ToolkitError
from toolkit.core.sample import ImageRecord


@dataclass(frozen=True, slots=True)
class Prepared:
    """One image as the engine gets it, and the record of what came in."""

    data_uri: str
    record: ImageRecord


@dataclass(frozen=True, slots=True)
class PreparedImages:
    """A request's images in its own order. Instants of the clock's monotonic(): all fetched, all prepared."""

    images: tuple[Prepared, ...]
    fetched_at: float
    prepared_at: float


class Access:
    """The access layer of one gateway. Owns the fetcher and the pool that it is given."""

    def __init__(
        self, config: AccessConfig, grid: ImageGrid, fetcher: Fetcher, pool: DecodePool, clock: Clock
    ) -> None:
        self._config = config
        self._grid = grid
        self._fetcher = fetcher
        self._pool = pool
        self._clock = clock

    async def prepare(self, urls: Sequence[str], deadline: float) -> PreparedImages:
        """Every image, or the first error; then the others are given up. Equal URLs are prepared once.

        `deadline` is an instant of the clock's monotonic(); at it OutOfTime is raised with hop "fetch" or "prepare".
        Raises InvalidRequest, TooLarge and Busy too; messages begin with "image 2 of 5: ".
        """
        if not urls:
            now = self._clock.monotonic()
            return PreparedImages((), now, now)
        if len(urls) > self._config.max_images:
            raise InvalidRequest(
                f"the request has {len(urls)} images; the limit is {self._config.max_images}.",
                code="too_many_images",
            )
        if self._grid.family == "text":
            raise InvalidRequest(f"the served model takes text only; the request has {len(urls)} images.")
        first = _first_places(urls)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = {
                    place: group.create_task(
                        self._one(urls[place], f"image {place + 1} of {len(urls)}", deadline)
                    )
                    for place in sorted(set(first))
                }
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        done = {place: task.result() for place, task in tasks.items()}
        return PreparedImages(
            images=tuple(done[place][0] for place in first),
            fetched_at=max(fetched_at for _, fetched_at in done.values()),
            prepared_at=self._clock.monotonic(),
        )

    async def close(self) -> None:
        """Gives up whatever runs. Idempotent."""
        await self._fetcher.close()
        self._pool.close()

    async def _one(self, url: str, name: str, deadline: float) -> tuple[Prepared, float]:
        hop = "fetch"
        try:
            async with asyncio.timeout(deadline - self._clock.monotonic()):
                data = await self._fetcher.fetch(url, deadline)
                fetched_at = self._clock.monotonic()
                hop = "prepare"
                origin = "data" if url[:5].lower() == "data:" else "url"
                return await self._pool.run(self._prepared, data, origin), fetched_at
        except TimeoutError as error:
            raise OutOfTime(f"{name}: the time budget ended during {hop}.", hop=hop) from error
        except ToolkitError as error:
            raise _named(error, name) from error

    def _prepared(self, data: bytes, origin: str) -> Prepared:
        """The CPU part, on a pool thread."""
        header = probe(data, self._config)
        target = self._grid.target_size(*header.size)
        file = encode(decode(data, header, target), self._config.handover)
        width, height = header.size
        return Prepared(
            data_uri=f"data:image/{self._config.handover};base64,{pybase64.b64encode_as_string(file)}",
            record=ImageRecord(
                width=width,
                height=height,
                size_bytes=header.size_bytes,
                format=header.format.lower(),
                tokens=self._grid.tokens(width, height),
                prepared_width=target[0],
                prepared_height=target[1],
                origin=origin,
            ),
        )


def _first_places(urls: Sequence[str]) -> list[int]:
    """For each URL the place of its first equal. Compared, not hashed: hashing megabytes would hold up the loop."""
    return [next(place for place, other in enumerate(urls) if other == url) for url in urls]


def _named(error: ToolkitError, name: str) -> ToolkitError:
    """The same error, saying which image."""
    return type(error)(
        f"{name}: {error.message}",
        code=error.code.code,
        param=error.param,
        retry_after_s=error.retry_after_s,
        hop=error.hop,
    )
