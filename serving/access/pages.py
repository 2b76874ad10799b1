"""What HTTP lets us remember of a URL: which file it had, until when that holds, and how to ask again.

The gateway is a shared cache in the sense of RFC 9111: it asks without credentials or cookies, so a URL has one
answer for every caller, and it keeps nothing that is marked `private` or `no-store`. No time is guessed: without
max-age (or s-maxage) each use asks the server, by ETag, whether the file is still the same. Expires and
Last-Modified are not used.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from serving.access.cache import NEVER, Store

LONGEST_S = 3600.0
"""However long the server allows: from then on one conditional request tells whether the file still holds."""

_ETAG = re.compile(r'(?:W/)?"[!#-~]{0,256}"')
_SECONDS = re.compile(r'"?([0-9]{1,10})"?')


@dataclass(frozen=True, slots=True)
class Terms:
    """What an answer's headers allow. lifetime_s: seconds from the request on; etag: empty where it has none."""

    store: bool
    lifetime_s: float
    etag: str


@dataclass(frozen=True, slots=True)
class Page:
    """A URL's file. digest: SHA-256 of its bytes; fresh_until: instant of the clock's monotonic()."""

    digest: bytes
    etag: str
    fresh_until: float


def terms_of(headers: Mapping[str, str]) -> Terms:
    """Reads lower-case headers; what cannot be understood allows nothing."""
    directives = _directives(headers.get("cache-control", ""))
    if "no-store" in directives or "private" in directives:
        return Terms(store=False, lifetime_s=0.0, etag="")
    if "*" in headers.get("vary", ""):
        return Terms(store=True, lifetime_s=0.0, etag="")  # the bytes are good, the URL says nothing
    allowed = directives.get("s-maxage", directives.get("max-age", "0"))
    if "no-cache" in directives:
        allowed = "0"
    lifetime_s = _seconds(allowed) - _seconds(headers.get("age", "0"))
    etag = headers.get("etag", "")
    return Terms(
        store=True,
        lifetime_s=min(max(lifetime_s, 0.0), LONGEST_S),
        etag=etag if _ETAG.fullmatch(etag) else "",
    )


class Pages:
    """The URLs that are remembered, within a bound of bytes."""

    def __init__(self, most_bytes: int) -> None:
        self._store: Store[str, Page] = Store(most_bytes)

    @property
    def size_bytes(self) -> int:
        return self._store.size_bytes

    def __len__(self) -> int:
        return len(self._store)

    def find(self, url: str, held: Callable[[bytes], bool], now: float) -> Page | None:
        """The page, if it is fresh or can be asked about, and what came of its file is still held."""
        page = self._store.get(url, now)
        return page if page is not None and held(page.digest) else None

    def keep(self, url: str, digest: bytes, terms: Terms, asked_at: float) -> None:
        """What the answer to a request sent at `asked_at` allows, in place of what was known."""
        if not terms.store or not (terms.lifetime_s or terms.etag):
            self._store.drop(url)
            return
        page = Page(digest, terms.etag, asked_at + terms.lifetime_s)
        self._store.put(url, page, len(url) + len(terms.etag), ends=NEVER if terms.etag else page.fresh_until)


def _directives(header: str) -> dict[str, str]:
    """name -> value; of a name that comes twice, the first."""
    found: dict[str, str] = {}
    for directive in header.lower().split(","):
        name, _, value = directive.partition("=")
        found.setdefault(name.strip(), value.strip())
    return found


def _seconds(text: str) -> float:
    match = _SECONDS.fullmatch(text.strip())
    return float(match[1]) if match else 0.0
