"""Where a request goes: the parts of an http(s) URL that the wire needs."""

from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Origin:
    """What connections are shared by."""

    tls: bool
    host: str  # without the brackets of an IPv6 literal
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Target:
    """One resource of an origin. authority: the `host` header. path: the request target, query included."""

    origin: Origin
    authority: str
    path: str


@lru_cache(maxsize=1024)
def parse_url(url: str) -> Target:
    """The parts of an absolute http(s) URL; a fragment is dropped.

    Raises ValueError for anything that cannot be put on the wire as it is: spaces, control characters and
    non-ASCII (percent-encode them first), other schemes, no host, credentials in the URL, a wrong port.
    """
    if not url.isascii() or any(char <= " " or char == "\x7f" for char in url):
        raise ValueError(f"URL {url!r} has spaces, control characters or non-ASCII; percent-encode them.")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        raise ValueError(f"URL {url!r} must start with http:// or https://.")
    if "@" in parts.netloc:
        raise ValueError("URL with credentials: send an authorization header instead.")
    if not parts.hostname:
        raise ValueError(f"URL {url!r} has no host.")
    tls = parts.scheme == "https"
    port = parts.port  # raises ValueError itself when out of range or not a number
    if port == 0:
        raise ValueError(f"URL {url!r} has port 0.")
    path = parts.path or "/"
    origin = Origin(tls, parts.hostname, port or (443 if tls else 80))
    return Target(origin, parts.netloc.removesuffix(":"), f"{path}?{parts.query}" if parts.query else path)
