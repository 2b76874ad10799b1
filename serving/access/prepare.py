"""From image URLs to pictures the engine keeps as they are: fetch, probe, decode, encode; all images at once.

An image is prepared once: who asks for the same bytes meanwhile waits for that, who asks later finds it, by the
digest of the bytes (docs/decisions/0013-once-is-enough.md).
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from serving.access.asked import Url, first_places, is_data, named
from serving.access.cache import Store
from serving.access.fetch import INLINE_URI, PAGES_SHARE, Fetched, Fetcher
from serving.access.grid import ImageGrid
from serving.access.meter import Meter, Unmetered
from serving.access.picture import Prepared, examine
from serving.access.recipe import recipe
from serving.access.shared.tier import SharedTier
from serving.access.single_flight import Begin, SingleFlight
from serving.access.workers import DecodePool, LateError, Made
from serving.config import MB, AccessConfig
from serving.lifted import Lifted
from toolkit.core import names
from toolkit.core.clock import Clock
from toolkit.core.errors import InvalidRequest, OutOfTime, ToolkitError

REFUSAL_S = 60.0
"""How long a refusal is remembered: a cut-off file costs a whole decode each time it is tried again. Not for good,
since what looks like a bad file may have been a decoder short of memory."""

TIER: Literal["memory"] = "memory"

How = Literal["", "memory", "shared", "joined"]
"""Where a picture was found, as ImageRecord.cache tells it."""

OnImage = Callable[[bytes, bytes, str], None]
"""digest, file, format; called on the event loop."""


@dataclass(frozen=True, slots=True)
class PreparedImages:
    """A request's images in its own order. Instants of the clock's monotonic(): all fetched, all prepared.

    digests: SHA-256 of each image's file.
    """

    images: tuple[Prepared, ...]
    fetched_at: float
    prepared_at: float
    digests: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Why an image is not taken, as a value: an exception would keep alive every frame it passed, and their files."""

    kind: type[InvalidRequest]
    message: str
    code: str
    action: str


@dataclass(frozen=True, slots=True)
class _Source:
    """What was read; `held` is what was made of it before, where that makes its bytes needless."""

    fetched: Fetched
    held: Prepared | _Refusal | None = None


@dataclass(frozen=True, slots=True)
class _Shape:
    """Into what an image is made: the grid, and the digest of all that decides it."""

    grid: ImageGrid
    recipe: bytes


class Access:
    """The access layer of one gateway. Owns the fetcher, the pool and the shared tier that it is given."""

    def __init__(
        self,
        config: AccessConfig,
        grid: ImageGrid,
        fetcher: Fetcher,
        pool: DecodePool,
        clock: Clock,
        meter: Meter | None = None,
        shared: SharedTier | None = None,
        on_image: OnImage | None = None,
    ) -> None:
        """on_image gets every accepted image whose bytes are at hand and may outlast the request, each time it comes."""
        self._config = config
        self._usual = _Shape(grid, recipe(config, grid))
        self._fetcher = fetcher
        self._pool = pool
        self._clock = clock
        self._meter = meter or Unmetered()
        self._shared = shared
        self._on_image = on_image
        self._held: Store[bytes, Prepared | _Refusal] = Store(int(config.cache_mb * MB * (1 - PAGES_SHARE)))
        self._reading: SingleFlight[tuple[bytes, Url], _Source] = SingleFlight()
        self._preparing: SingleFlight[bytes, tuple[Prepared, How]] = SingleFlight()

    @property
    def held_images(self) -> int:
        """Prepared images and refusals that are remembered."""
        return len(self._held)

    @property
    def held_bytes(self) -> int:
        """Memory that is taken by all that is remembered."""
        return self._held.size_bytes + self._fetcher.remembered_bytes

    @property
    def shared_up(self) -> bool | None:
        """Whether the shared tier is in use; None where there is none."""
        return None if self._shared is None else self._shared.up

    @property
    def shared_standing(self) -> str | None:
        """What is known of the shared tier, as SharedTier.standing; None where there is none."""
        return None if self._shared is None else self._shared.standing

    async def start(self) -> None:
        """Looks for the shared tier; waits for no answer."""
        if self._shared is not None:
            await self._shared.look()

    @property
    def grid(self) -> ImageGrid:
        """The served model's own."""
        return self._usual.grid

    async def prepare(
        self,
        urls: Sequence[str | Lifted],
        deadline: float,
        grid: ImageGrid | None = None,
        *,
        keep: bool = True,
    ) -> PreparedImages:
        """Every image, or the first error; then the others are given up. Equal URLs are prepared once.

        `deadline` is an instant of the clock's monotonic(); at it OutOfTime is raised with hop "fetch" or "prepare".
        grid: a smaller one of the same model (fit.py), for pictures with fewer tokens; they stay in this gateway's memory.
        keep: whether anything of them may outlast the request.
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
        if self.grid.family == "text":
            raise InvalidRequest(f"the served model takes text only; the request has {len(urls)} images.")
        shape = self._usual if grid is None or grid == self.grid else self._smaller(grid)
        first = first_places(urls)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = {
                    place: group.create_task(
                        self._one(urls[place], f"image {place + 1} of {len(urls)}", deadline, shape, keep)
                    )
                    for place in sorted(set(first))
                }
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        done = {place: task.result() for place, task in tasks.items()}
        return PreparedImages(
            images=tuple(done[place][0] for place in first),
            fetched_at=max(fetched_at for _, fetched_at, _ in done.values()),
            prepared_at=self._clock.monotonic(),
            digests=tuple(done[place][2] for place in first),
        )

    async def close(self) -> None:
        """Gives up whatever runs. Idempotent."""
        await self._reading.close()
        await self._preparing.close()
        await self._fetcher.close()
        if self._shared is not None:
            await self._shared.close()
        self._pool.close()

    def _smaller(self, grid: ImageGrid) -> _Shape:
        return _Shape(grid, hashlib.sha256(self._usual.recipe + repr(grid).encode()).digest())

    async def _one(
        self, url: str | Lifted, name: str, deadline: float, shape: _Shape, keep: bool
    ) -> tuple[Prepared, float, bytes]:
        while True:
            try:
                return await self._attempt(url, name, deadline, shape, keep)
            except LateError as error:
                if error.deadline >= deadline:
                    raise
                # Somebody in more of a hurry, whose image it was first, gave it up.

    async def _attempt(
        self, url: str | Lifted, name: str, deadline: float, shape: _Shape, keep: bool
    ) -> tuple[Prepared, float, bytes]:
        hop = "fetch"
        try:
            async with asyncio.timeout(deadline - self._clock.monotonic()):
                source = await self._read(url, deadline, shape)
                if not keep:
                    source = replace(source, fetched=replace(source.fetched, keep=False))
                digest = source.fetched.digest
                how, picture = self._picture(source, deadline, shape)
                del source  # only the work itself holds the file while many wait for it
                fetched_at = self._clock.monotonic()
                hop = "prepare"
                prepared, made = await picture
        except TimeoutError as error:
            raise OutOfTime(f"{name}: the time budget ended during {hop}.", hop=hop) from error
        except LateError:
            raise
        except ToolkitError as error:
            raise named(error, name) from error
        return _for_this(prepared, "data" if is_data(url) else "url", how or made), fetched_at, digest

    async def _read(self, url: str | Lifted, deadline: float, shape: _Shape) -> _Source:
        data = is_data(url)
        if data and len(url) <= INLINE_URI:
            return _Source(await self._fetcher.fetch(url, deadline))
        key = (shape.recipe, Url(url))
        shared = key in self._reading
        source = await self._reading.join(key, lambda _: self._read_shared(url, shape)).wait()
        if not data:
            self._meter.count(names.IMAGE_URLS, result="joined" if shared else source.fetched.read)
        return source

    async def _read_shared(self, url: str | Lifted, shape: _Shape) -> _Source:
        """Bounded by the URL limit alone: each who waits has a deadline of its own."""
        found: list[Prepared | _Refusal] = []

        def held(digest: bytes) -> bool:
            image = self._held.get(shape.recipe + digest, self._clock.monotonic())
            found[:] = [] if image is None else [image]
            return image is not None

        fetched = await self._fetcher.fetch(url, None, held)
        # What was found then counts, even if it had to make room since.
        return _Source(fetched, found[0] if fetched.data is None else None)

    def _picture(
        self, source: _Source, deadline: float, shape: _Shape
    ) -> tuple[How, Awaitable[tuple[Prepared, How]]]:
        """The picture, held or to come. Not a coroutine: it must not keep the file while its caller waits."""
        key = shape.recipe + source.fetched.digest
        held = source.held or self._held.get(key, self._clock.monotonic())
        if held is not None:
            self._meter.count(names.IMAGE_CACHE, tier=TIER, result="hit")
            if isinstance(held, Prepared):
                self._accepted(source.fetched, held, shape)
            return TIER, _told(held)
        joined = key in self._preparing
        self._meter.count(names.IMAGE_CACHE, tier=TIER, result="wait" if joined else "miss")
        flight = self._preparing.join(
            key, lambda begin: self._prepare_and_keep(key, source.fetched, deadline, shape, begin)
        )
        return "joined" if joined else "", flight.wait()

    async def _prepare_and_keep(
        self, key: bytes, fetched: Fetched, deadline: float, shape: _Shape, begin: Begin
    ) -> tuple[Prepared, How]:
        assert fetched.data is not None
        shared = self._shared if shape is self._usual else None
        prepared = await shared.get(key, len(fetched.data)) if shared is not None else None
        how: How = "" if prepared is None else "shared"
        if prepared is None:
            prepared = await self._prepare_anew(key, fetched, deadline, shape, begin)
            if fetched.keep and shared is not None:
                shared.put(key, prepared)
        if fetched.keep:
            self._held.put(key, prepared, len(prepared.data_uri))
        self._accepted(fetched, prepared, shape)
        return prepared, how

    def _accepted(self, fetched: Fetched, prepared: Prepared, shape: _Shape) -> None:
        if self._on_image is None or shape is not self._usual:
            return
        if fetched.keep and fetched.data is not None:
            self._on_image(fetched.digest, fetched.data, prepared.record.format)

    async def _prepare_anew(
        self, key: bytes, fetched: Fetched, deadline: float, shape: _Shape, begin: Begin
    ) -> Prepared:
        assert fetched.data is not None
        try:
            task = await self._pool.run_on(len(fetched.data), examine, fetched.data, self._config, shape.grid)
            made = await self._pool.make(fetched.data, task, deadline, begin)
        except InvalidRequest as error:  # about the bytes and the limits in the recipe, nothing else
            if fetched.keep:
                refusal = _Refusal(type(error), error.message, error.code.code, error.action)
                ends = self._clock.monotonic() + REFUSAL_S
                self._held.put(key, refusal, len(error.message), ends)
            raise
        self._tell(made)
        return made.prepared

    def _tell(self, made: Made) -> None:
        record = made.prepared.record
        self._meter.observe(names.IMAGE_LINE, made.waited_s, lane=made.lane)
        self._meter.observe(names.IMAGE_CPU, made.decode_s, step="decode", format=record.format)
        self._meter.observe(names.IMAGE_CPU, made.resize_s, step="resize", format=record.format)
        self._meter.observe(names.IMAGE_CPU, made.encode_s, step="encode", format=record.format)


def _for_this(prepared: Prepared, origin: Literal["data", "url"], how: How) -> Prepared:
    """The same picture as it came to this request: the first who asked may have sent it the other way."""
    if (prepared.record.origin, prepared.record.cache) == (origin, how):
        return prepared
    return replace(prepared, record=replace(prepared.record, origin=origin, cache=how))


async def _told(held: Prepared | _Refusal) -> tuple[Prepared, How]:
    """What is remembered, told as if it were new."""
    if isinstance(held, _Refusal):
        raise held.kind(held.message, code=held.code, action=held.action)
    return held, TIER
