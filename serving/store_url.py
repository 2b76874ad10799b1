"""The URL of a Valkey or Redis server: whether it is one, and where it points, without its password."""

from typing import Annotated
from urllib.parse import parse_qs, urlsplit

from pydantic import AfterValidator

from toolkit.core.masked import MASK, MaskedUrl

_OPTIONS = {
    "redis": {"db"},
    "unix": {"db"},
    "rediss": {"db", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile"},
}
"""By scheme. The client library takes more from a URL, and lets them win over what we set: timeouts, retries."""


def mistake(url: str) -> str:
    """What is wrong with the URL; empty where nothing is."""
    try:
        parts = urlsplit(url)
        options = parse_qs(parts.query, strict_parsing=True) if parts.query else {}
        port = parts.port
    except ValueError:  # whose words may quote a password
        return "not a URL; in a password write %40 for @, %2F for / and %3A for :"
    if parts.scheme not in _OPTIONS:
        return "write it as redis://host:6379/0, rediss://host:6380/0 or unix:///path/to/socket"
    if MASK in (parts.username, parts.password):
        return "the password is masked, as `toolkit config show` prints it: write the real one"
    if unknown := sorted(set(options) - _OPTIONS[parts.scheme]):
        return f"unknown option {unknown[0]!r}; known: {', '.join(sorted(_OPTIONS[parts.scheme]))}"
    if not all(number.isdecimal() for number in options.get("db", [])):
        return "db must be a number"
    if parts.scheme == "unix":
        wrong = parts.hostname or port or not parts.path.strip("/")
        return "name a socket, with three slashes: unix:///path/to/socket" if wrong else ""
    database = parts.path.strip("/")
    if database and not database.isdecimal():
        return f"{database!r} is no database number"
    return "" if parts.hostname else "it names no host"


def address(url: str) -> str:
    """Where the server is, for people: the URL without user, password and options."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _checked(url: str) -> str:
    if url and (wrong := mistake(url)):
        raise ValueError(wrong)
    return url


StoreUrl = Annotated[MaskedUrl, AfterValidator(_checked)]
"""A field of a Section that names such a server; empty: none. Use with Field(repr=False)."""
