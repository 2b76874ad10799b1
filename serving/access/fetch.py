"""The bytes behind an image URL: a data: URI, or http(s) under a guard, a byte cap and one total deadline.

Messages never tell a resolved address or a byte of the answer: what the gateway can reach is not for callers.
Answers are remembered by the URL that gave them, as far as HTTP allows (pages.py); a redirect is asked for anew.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

from serving.access import data_uri
from serving.access.fetched import Fetched as Fetched
from serving.access.fetched import digest
from serving.access.meter import Meter, Unmetered
from serving.access.pages import Pages
from serving.access.workers import DecodePool
from serving.config import MB, AccessConfig
from serving.lifted import Lifted
from toolkit.core import names
from toolkit.core.clock import Clock, SystemClock
from toolkit.core.errors import OutOfTime, ToolkitError

if TYPE_CHECKING:
    from serving.access.download import Downloader
    from serving.access.resolver import Resolver

PAGES_SHARE = 1 / 16
"""Part of access.cache_mb for what is known of URLs: 8 kB at most each, a fifth of that as a rule."""

_INLINE_BYTES = 192_000  # that are hashed in well under a millisecond, on the event loop
INLINE_URI = _INLINE_BYTES // 3 * 4
"""Characters of a data: URI up to which it is decoded and hashed in place."""


def _nothing(_: bytes) -> bool:
    return False


class Fetcher:
    """One per gateway; keeps connections open between requests."""

    def __init__(
        self,
        config: AccessConfig,
        pool: DecodePool,
        clock: Clock | None = None,
        resolve: "Resolver | None" = None,
        tls: ssl.SSLContext | None = None,
        meter: Meter | None = None,
    ) -> None:
        self._config = config
        self._pool = pool
        self._clock = clock or SystemClock()
        self._resolve = resolve
        self._tls = tls
        self._meter = meter or Unmetered()
        self._pages = Pages(int(config.cache_mb * MB * PAGES_SHARE))
        self._loading: asyncio.Task[Downloader] | None = None

    @property
    def remembered_bytes(self) -> int:
        """Memory that is taken by what is known of URLs."""
        return self._pages.size_bytes

    async def fetch(
        self, url: str | Lifted, deadline: float | None = None, held: Callable[[bytes], bool] = _nothing
    ) -> Fetched:
        """The file; `deadline` is an instant of the clock's monotonic().

        `held` says of a digest whether the caller holds what it needs of those bytes; then they are not sent again
        if the server says so (ETag), nor asked for while its max-age lasts.
        Raises InvalidRequest (image_url_blocked, image_fetch_failed, image_host_failing, image_invalid),
        TooLarge(image_too_large), OutOfTime(hop="fetch") at the deadline, Busy.
        """
        if isinstance(url, Lifted) or url[:5].lower() == "data:":
            inline = data_uri.parse(url, self._config.max_image_bytes)
            if len(url) <= INLINE_URI:
                return data_uri.decode(inline)
            return await self._pool.run_on(inline.size, data_uri.decode, inline)
        try:
            async with asyncio.timeout(None if deadline is None else deadline - self._clock.monotonic()):
                return await self._fetched(url, held)
        except TimeoutError as error:
            raise OutOfTime("the time budget ended while the image was downloading.", hop="fetch") from error

    async def close(self) -> None:
        """Closes every connection. Idempotent."""
        if self._loading is not None:
            await (await self._loading).close()

    async def _fetched(self, url: str, held: Callable[[bytes], bool]) -> Fetched:
        result, began = "given_up", self._clock.monotonic()
        try:
            found = await (await self._downloader()).get(url, held)
            result = found.read if isinstance(found, Fetched) else "downloaded"
            if result != "fresh":
                self._meter.observe(names.IMAGE_FETCH_SECONDS, self._clock.monotonic() - began)
        except ToolkitError as error:
            result = error.code.code
            raise
        finally:
            self._meter.count(names.IMAGE_FETCHES, result=result)
        if isinstance(found, Fetched):
            return found
        inline = len(found.data) <= _INLINE_BYTES
        name = digest(found.data) if inline else await self._pool.run_on(len(found.data), digest, found.data)
        self._pages.keep(found.page, name, found.terms, found.asked_at)
        return Fetched(found.data, name, found.terms.store, "downloaded", found.place)

    async def _downloader(self) -> "Downloader":
        """Loaded with the first URL, on a thread."""
        if self._loading is None:
            self._loading = asyncio.get_running_loop().create_task(asyncio.to_thread(self._load))
        return await asyncio.shield(self._loading)

    def _load(self) -> "Downloader":
        from serving.access.download import Downloader

        return Downloader(self._config, self._clock, self._pages, self._meter, self._resolve, self._tls)
