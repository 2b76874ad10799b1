"""One image URL asked for: hop by hop under the rules, within a place of its host, a byte cap and one deadline.

Imported with the first URL that is fetched: httpx and what it needs take a gateway a quarter of a second to load,
and one that is only sent data: URIs never needs them.
"""

import asyncio
import math
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import certifi
import httpx
from httpx_secure import SSRFProtectionError

from serving.access.breaker import BreakerRule
from serving.access.budget import budget_of
from serving.access.connections import Connections
from serving.access.fetched import Fetched
from serving.access.guard import BlockedError, UnresolvedError
from serving.access.heads import head_ended
from serving.access.landing import Landing, Place, no_room
from serving.access.meter import Meter
from serving.access.pages import Page, Pages, Terms, terms_of
from serving.access.resolver import Resolver
from serving.access.standing import HostStanding, Leave
from serving.access.target import Target, UrlRules, blocked
from serving.access.turns import Turns
from serving.config import AccessConfig
from toolkit.core import names
from toolkit.core.clock import Clock
from toolkit.core.errors import Busy, InvalidRequest

_HEADERS = {"Accept": "image/*", "Accept-Encoding": "identity", "User-Agent": "mm-serving-toolkit"}
_REDIRECTS = frozenset([301, 302, 303, 307, 308])
_OVERLOADED = 429
_HOLD_S, _MOST_HOLD_S = 2.0, 60.0
_FAIR_SHARE = 0.5  # of the time limit: a host that was given less is not to blame for the rest
_DRAINED_BYTES, _DRAINED_PIECES = 4096, 16


@dataclass(frozen=True, slots=True)
class Body:
    """A whole answer; asked_at: instant of the clock's monotonic(); place: keeps its room in memory."""

    data: bytes
    page: str
    terms: Terms
    asked_at: float
    place: Place


UNRESOLVED = "Check the host's name in the URL: it must have an address in the public DNS. Or send the image as a data: URI."


class _HostFault(Exception):
    """The host is at fault, not the URL. told, action: for the caller."""

    def __init__(self, told: str, action: str = "") -> None:
        super().__init__(told)
        self.told = told
        self.action = action


Held = Callable[[bytes], bool]


class Downloader:
    """One per gateway; owns its connections."""

    def __init__(
        self,
        config: AccessConfig,
        clock: Clock,
        pages: Pages,
        meter: Meter,
        resolve: Resolver | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._pages = pages
        self._meter = meter
        self._rules = UrlRules(config)
        self._turns = Turns(config.max_downloads, config.max_downloads_per_host, self._tell)
        self._standing = HostStanding(BreakerRule(config.host_failures, _HOLD_S, _MOST_HOLD_S))
        self._landing = Landing(budget_of(config).downloads, config.max_image_bytes, meter)
        tls = tls or ssl.create_default_context(cafile=certifi.where())
        self._connections = Connections(self._rules, tls, config.max_downloads, resolve)

    async def get(self, url: str, held: Held) -> Fetched | Body:
        """The answer at the end of the redirects. A caller with less time than url_timeout_s cancels.

        Raises InvalidRequest (image_url_blocked, image_fetch_failed, image_host_failing), TooLarge, Busy.
        """
        ends = asyncio.get_running_loop().time() + self._config.url_timeout_s
        target = self._rules.target(url)
        for _ in range(self._config.max_redirects + 1):
            found = await self._in_turn(target, held, ends)
            if not isinstance(found, Target):
                return found
            target = found
        raise failed(f"the URL redirects more than {self._config.max_redirects} times")

    async def close(self) -> None:
        """Closes every connection. Idempotent."""
        await self._connections.close()

    async def _in_turn(self, target: Target, held: Held, ends: float) -> Fetched | Body | Target:
        """One hop; `ends` is an instant of the event loop's clock."""
        asked_at = self._clock.monotonic()
        page = self._pages.find(target.page, held, asked_at)
        if page is not None and asked_at < page.fresh_until:
            return Fetched(None, page.digest, read="fresh")
        left_alone_s = self._standing.retry_after_s(target.host, asked_at)
        if left_alone_s:
            raise failing(left_alone_s)
        loop = asyncio.get_running_loop()
        came = loop.time()
        try:
            async with asyncio.timeout_at(ends):
                await self._turns.take(target.host)
        except TimeoutError as error:
            raise _out_of_turn() from error
        try:
            return await self._judged(target, held, ends, loop.time() - came)
        finally:
            self._turns.give_back(target.host)

    async def _judged(
        self, target: Target, held: Held, ends: float, waited_s: float
    ) -> Fetched | Body | Target:
        """What comes of it, told to the host's breaker. What a URL is to blame for says nothing against its host."""
        leave = self._standing.enter(target.host, self._clock.monotonic())
        if not isinstance(leave, Leave):
            raise failing(leave)
        fair = ends - asyncio.get_running_loop().time() >= _FAIR_SHARE * self._config.url_timeout_s
        place = self._landing.place()
        found: Fetched | Body | Target | None = None
        try:
            async with asyncio.timeout_at(ends):
                found = await self._ask(target, held, place)
        except TimeoutError as error:
            if place.waiting:
                self._standing.unasked(leave)
                raise no_room() from error
            if fair:
                self._blame(leave)
            else:
                self._standing.unasked(leave)
            if waited_s > _FAIR_SHARE * self._config.url_timeout_s:
                raise _out_of_turn() from error
            raise failed(f"the download took longer than {self._config.url_timeout_s:g} s") from error
        except _HostFault as fault:
            self._blame(leave)
            raise failed(fault.told, fault.action) from fault
        except InvalidRequest:
            self._standing.answered(leave)
            raise
        except BaseException:
            self._standing.unasked(leave)
            raise
        finally:
            if not isinstance(found, Body):
                place.release()
        self._standing.answered(leave)
        return found

    async def _ask(self, target: Target, held: Held, place: Place) -> Fetched | Body | Target:
        asked_at = self._clock.monotonic()
        page = self._pages.find(target.page, held, asked_at)
        headers = _HEADERS if page is None else {**_HEADERS, "If-None-Match": page.etag}
        try:
            async with self._connections.of(target) as transport:
                response = await _sent(transport, target.url, headers, self._config.url_timeout_s)
                head_ended(response)
                try:
                    return await self._answer(target, response, page, asked_at, place)
                finally:
                    await response.aclose()
        except (BlockedError, SSRFProtectionError) as error:
            raise blocked("the URL's host is not on the public internet") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            if isinstance(error.__cause__, UnresolvedError):
                raise _HostFault("the name of the image's host does not resolve", UNRESOLVED) from error
            raise _HostFault("the download failed") from error

    async def _answer(
        self, target: Target, response: httpx.Response, page: Page | None, asked_at: float, place: Place
    ) -> Fetched | Body | Target:
        status = response.status_code
        if status == 304 and page is not None:
            await _drain(response)
            terms = terms_of(response.headers)
            terms = replace(terms, etag=terms.etag or page.etag)  # a 304 may leave it out
            self._pages.keep(target.page, page.digest, terms, asked_at)
            return Fetched(None, page.digest, terms.store, "unchanged")
        if status in _REDIRECTS:
            location = response.headers.get("location")
            if location is None:
                raise failed(f"the URL answered {status} without saying where to go")
            found = self._rules.redirected(target, location)
            await _drain(response)
            return found
        if status == _OVERLOADED or status >= 500:
            raise _HostFault(f"the URL answered {status}")
        if status != 200:
            raise failed(f"the URL answered {status}")
        data = await self._landing.body(response, place)
        return Body(data, target.page, terms_of(response.headers), asked_at, place)

    def _blame(self, leave: Leave) -> None:
        if self._standing.failed(leave, self._clock.monotonic()):
            self._meter.count(names.IMAGE_HOST_BREAKERS)

    def _tell(self, running: int, waiting: int) -> None:
        self._meter.gauge(names.IMAGE_DOWNLOADS, running, state="running")
        self._meter.gauge(names.IMAGE_DOWNLOADS, waiting, state="waiting")


async def _sent(
    transport: httpx.AsyncHTTPTransport, url: httpx.URL, headers: Mapping[str, str], connect_s: float
) -> httpx.Response:
    """The answer's head. A kept connection may be closed by its server just when it is used again: asked once more."""
    dialled = False

    async def trace(event: str, _: object) -> None:
        nonlocal dialled
        dialled = dialled or event.startswith("connection.connect_tcp")

    request = httpx.Request(
        "GET", url, headers=headers, extensions={"trace": trace, "timeout": {"connect": connect_s}}
    )
    try:
        return await transport.handle_async_request(request)
    except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
        if dialled:
            raise
        return await transport.handle_async_request(request)


async def _drain(response: httpx.Response) -> None:
    """Reads a small body to its end, so that the connection can be kept; a longer one costs it."""
    read = pieces = 0
    async for piece in response.aiter_raw():
        read, pieces = read + len(piece), pieces + 1
        if read > _DRAINED_BYTES or pieces > _DRAINED_PIECES:
            return


def failed(reason: str, action: str = "") -> InvalidRequest:
    """The download came to nothing."""
    return InvalidRequest(f"{reason}.", code="image_fetch_failed", action=action)


def failing(retry_after_s: float) -> InvalidRequest:
    """The host is left alone for now."""
    return InvalidRequest(
        f"the image's host failed several times in a row; it is asked again in {math.ceil(retry_after_s)} s.",
        code="image_host_failing",
        retry_after_s=retry_after_s,
    )


def _out_of_turn() -> Busy:
    return Busy("the downloads before it took the time that there was for this one.", retry_after_s=1.0)
