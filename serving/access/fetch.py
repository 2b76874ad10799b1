"""The bytes behind an image URL: a data: URI, or http(s) under a guard, a byte cap and one total deadline.

Messages never tell a resolved address or a byte of the answer: what the gateway can reach is not for callers.
Answers are remembered by the URL that gave them, as far as HTTP allows (pages.py); a redirect is asked for anew.
"""

import asyncio
import binascii
import hashlib
import ssl
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import certifi
import httpx
import pybase64
from httpx_secure import SSRFProtectionError

from serving.access.address import is_public, literal
from serving.access.guard import BlockedError, DnsThreads, Resolver, guarded_client, open_client
from serving.access.pages import Page, Pages, Terms, terms_of
from serving.access.workers import DecodePool
from serving.config import MB, AccessConfig
from toolkit.core.clock import Clock, SystemClock
from toolkit.core.errors import InvalidRequest, OutOfTime, TooLarge

_HEADERS = {"Accept": "image/*", "Accept-Encoding": "identity", "User-Agent": "mm-serving-toolkit"}
_PORTS = {"http": 80, "https": 443}
_REDIRECTS = frozenset([301, 302, 303, 307, 308])
_LONGEST_URL = 8192
PAGES_SHARE = 1 / 16
"""Part of access.cache_mb for what is known of URLs: 8 kB at most each, a fifth of that as a rule."""

_LONGEST_DATA_HEAD = 256
_BASE64_PIECE = 1 << 20  # characters, a multiple of four
_INLINE_BYTES = 192_000  # that are hashed in well under a millisecond, on the event loop
INLINE_URI = _INLINE_BYTES // 3 * 4
"""Characters of a data: URI up to which it is decoded and hashed in place."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """An image file, or the news that what the caller holds of it is still right.

    data: None for the latter; digest: SHA-256 of the bytes; keep: whether anything of it may outlast the
    request; read: how it was come by.
    """

    data: bytes | None
    digest: bytes
    keep: bool = True
    read: Literal["data", "downloaded", "unchanged", "fresh"] = "data"


@dataclass(frozen=True, slots=True)
class _Body:
    """A whole answer; asked_at: instant of the clock's monotonic()."""

    data: bytes
    url: str
    terms: Terms
    asked_at: float


def _nothing(_: bytes) -> bool:
    return False


class Fetcher:
    """One per gateway; keeps connections open between requests."""

    def __init__(
        self,
        config: AccessConfig,
        pool: DecodePool,
        clock: Clock | None = None,
        resolve: Resolver | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._config = config
        self._pool = pool
        self._clock = clock or SystemClock()
        self._dns = DnsThreads()
        tls = tls or ssl.create_default_context(cafile=certifi.where())
        self._guarded = guarded_client(tls, config.url_timeout_s, resolve or self._dns)
        self._open = open_client(tls, config.url_timeout_s)
        self._pages = Pages(int(config.cache_mb * MB * PAGES_SHARE))

    @property
    def remembered_bytes(self) -> int:
        """Memory that is taken by what is known of URLs."""
        return self._pages.size_bytes

    async def fetch(
        self, url: str, deadline: float | None = None, held: Callable[[bytes], bool] = _nothing
    ) -> Fetched:
        """The file; `deadline` is an instant of the clock's monotonic().

        `held` says of a digest whether the caller holds what it needs of those bytes; then they are not sent again
        if the server says so (ETag), nor asked for while its max-age lasts.
        Raises InvalidRequest (image_url_blocked, image_fetch_failed, image_invalid), TooLarge(image_too_large),
        OutOfTime(hop="fetch") at the deadline, Busy.
        """
        if url[:5].lower() == "data:":
            return await self._from_data_uri(url)
        left_s = None if deadline is None else deadline - self._clock.monotonic()
        limit_s = self._config.url_timeout_s
        try:
            async with asyncio.timeout(limit_s if left_s is None else min(limit_s, left_s)):
                found = await self._download(url, held)
        except TimeoutError as error:
            if left_s is not None and left_s <= limit_s:
                raise OutOfTime(
                    "the time budget ended while the image was downloading.", hop="fetch"
                ) from error
            raise _failed(f"the download took longer than {limit_s:g} s") from error
        if isinstance(found, Fetched):
            return found
        inline = len(found.data) <= _INLINE_BYTES
        digest = _digest(found.data) if inline else await self._pool.run(_digest, found.data)
        self._pages.keep(found.url, digest, found.terms, found.asked_at)
        return Fetched(found.data, digest, found.terms.store, "downloaded")

    async def close(self) -> None:
        """Closes every connection. Idempotent."""
        await self._guarded.aclose()
        await self._open.aclose()
        self._dns.close()

    async def _from_data_uri(self, url: str) -> Fetched:
        comma = url.find(",", 0, _LONGEST_DATA_HEAD)
        media_type, *parameters = url[5 : max(comma, 5)].split(";")
        if comma < 0 or not parameters or parameters[-1].strip().lower() != "base64":
            raise InvalidRequest("a data: URI must be data:image/...;base64,...", code="image_invalid")
        if not media_type.strip().lower().startswith("image/"):
            raise InvalidRequest("a data: URI must have an image/* media type.", code="image_invalid")
        begin, limit = comma + 1, self._config.max_image_bytes
        length = len(url) - begin
        size = length * 3 // 4 - url[max(begin, len(url) - 2) :].count("=")
        if size > limit:
            raise _too_large(f"the image has {size} bytes; the limit is {limit}")
        try:
            if len(url) <= INLINE_URI:
                return _decoded(url, begin, size)
            return await self._pool.run(_decoded, url, begin, size)
        except (binascii.Error, ValueError) as error:
            raise InvalidRequest("the data: URI is not valid base64.", code="image_invalid") from error

    async def _download(self, url: str, held: Callable[[bytes], bool]) -> Fetched | _Body:
        target = _parse(url)
        for _ in range(self._config.max_redirects + 1):
            client = self._client_for(target)
            name, asked_at = str(target.copy_with(fragment=None)), self._clock.monotonic()
            page = self._pages.find(name, held, asked_at)
            if page is not None and asked_at < page.fresh_until:
                return Fetched(None, page.digest, read="fresh")
            headers = _HEADERS if page is None else {**_HEADERS, "If-None-Match": page.etag}
            try:
                request = client.build_request("GET", target, headers=headers)
                response = await client.send(request, stream=True)
                try:
                    if response.status_code == 304 and page is not None:
                        await response.aread()  # has no body; read to its end, the connection stays open
                        return self._unchanged(name, page, response, asked_at)
                    if response.status_code not in _REDIRECTS:
                        data = await self._body(response)
                        return _Body(data, name, terms_of(response.headers), asked_at)
                    target = _redirected(target, response)
                finally:
                    await response.aclose()
            except (BlockedError, SSRFProtectionError) as error:
                raise _blocked("the URL's host is not on the public internet") from error
            except UnicodeError as error:  # a host name that IDNA refuses, or with a label that is too long
                raise _blocked("the URL's host is not a name") from error
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                raise _failed("the download failed") from error
        raise _failed(f"the URL redirects more than {self._config.max_redirects} times")

    def _client_for(self, url: httpx.URL) -> httpx.AsyncClient:
        """The client that may dial this URL. Raises InvalidRequest(image_url_blocked) where none may."""
        if url.scheme not in _PORTS:
            raise _blocked("only http://, https:// and data: URLs are fetched")
        if not url.host:
            raise _blocked("the URL has no host")
        if url.userinfo:
            raise _blocked("URLs with a user name or password are not fetched")
        port = url.port or _PORTS[url.scheme]
        host = f"[{url.host}]" if ":" in url.host else url.host
        if f"{host}:{port}".lower() in self._config.allowed_hosts:
            return self._open
        if port not in _PORTS.values():
            raise _blocked(f"port {port} is not fetched from")
        try:
            address = literal(url.host)
        except ValueError as error:
            raise _blocked("the URL's host is neither a plain address nor a plain name") from error
        name = url.host.lower()
        if (
            (address is not None and not is_public(address))
            or name == "localhost"
            or name.endswith(".localhost")
        ):
            raise _blocked("the URL's host is not on the public internet")
        return self._guarded

    def _unchanged(self, url: str, page: Page, response: httpx.Response, asked_at: float) -> Fetched:
        terms = terms_of(response.headers)
        terms = replace(terms, etag=terms.etag or page.etag)  # a 304 may leave it out
        self._pages.keep(url, page.digest, terms, asked_at)
        return Fetched(None, page.digest, terms.store, "unchanged")

    async def _body(self, response: httpx.Response) -> bytes:
        limit = self._config.max_image_bytes
        if response.status_code != 200:
            raise _failed(f"the URL answered {response.status_code}")
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise _failed("the URL answered with a content encoding though none was accepted")
        announced = response.headers.get("content-length", "")
        if announced.isdecimal() and int(announced) > limit:
            raise _too_large(f"the URL announces {announced} bytes; the limit is {limit}")
        body = bytearray()
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > limit:
                raise _too_large(f"the URL sends more than {limit} bytes, the limit")
        if not body:
            raise _failed("the URL answered with an empty body")
        return bytes(body)


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _decoded(url: str, begin: int, size: int) -> Fetched:
    """One job, so that a large image waits for a thread once. Raises ValueError."""
    data = _decode_base64(url, begin, size)
    return Fetched(data, _digest(data))


def _decode_base64(url: str, begin: int, size: int) -> bytes:
    """In pieces, because each is decoded under the interpreter lock. Raises ValueError."""
    pieces = range(begin, len(url), _BASE64_PIECE)
    data = b"".join(pybase64.b64decode(url[at : at + _BASE64_PIECE], validate=True) for at in pieces)
    if len(data) != size:
        raise ValueError("padding in the middle")
    return data


def _parse(url: str) -> httpx.URL:
    if len(url) > _LONGEST_URL:
        raise _blocked(
            f"only http://, https:// and data: URLs of up to {_LONGEST_URL} characters are fetched"
        )
    # Parsers disagree about these; whoever sends one wants them to.
    if any(character <= " " or character in "\\\x7f" for character in url):
        raise _blocked("the URL has spaces, control characters or backslashes in it")
    try:
        return httpx.URL(url)
    except (httpx.InvalidURL, ValueError) as error:
        raise _blocked("this is not a URL; only http://, https:// and data: URLs are fetched") from error


def _redirected(source: httpx.URL, response: httpx.Response) -> httpx.URL:
    location = response.headers.get("location")
    if location is None:
        raise _failed(f"the URL answered {response.status_code} without saying where to go")
    target = source.join(_parse(location))
    if source.scheme == "https" and target.scheme != "https":
        raise _blocked("the URL redirects from https to something else")
    return target


def _blocked(reason: str) -> InvalidRequest:
    return InvalidRequest(f"{reason}.", code="image_url_blocked")


def _failed(reason: str) -> InvalidRequest:
    return InvalidRequest(f"{reason}.", code="image_fetch_failed")


def _too_large(reason: str) -> TooLarge:
    return TooLarge(f"{reason}.", code="image_too_large")
