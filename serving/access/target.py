"""Which URLs may be asked for: spelling, scheme, host, port, lists. Decided before any look-up. Pure.

What a name resolves to is checked where it is dialled (guard.py).
"""

import re
from dataclasses import dataclass

import httpx

from serving.access.address import is_public, literal
from serving.access.hosts import Address, Hosts
from serving.config import AccessConfig
from toolkit.core.errors import InvalidRequest

_PORTS = {"http": 80, "https": 443}
_LONGEST_URL = 8192
_LONGEST_NAME = 253
_NAME = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")


@dataclass(frozen=True, slots=True)
class Target:
    """A URL that may be asked for. host: lower-case ASCII; trusted: in allowed_hosts, so it may be private."""

    url: httpx.URL
    host: str
    trusted: bool

    @property
    def page(self) -> str:
        """The URL without its fragment, which is never sent."""
        return str(self.url.copy_with(fragment=None))


class UrlRules:
    """One gateway's rules, from its configuration."""

    def __init__(self, config: AccessConfig) -> None:
        self._allowed = frozenset(config.allowed_hosts)
        self._only = Hosts(config.only_hosts)
        self._blocked = Hosts(config.blocked_hosts)

    def target(self, text: str) -> Target:
        """Raises InvalidRequest(image_url_blocked)."""
        return self._checked(_parse(text))

    def redirected(self, source: Target, location: str) -> Target:
        """Where an answer of `source` sends us, checked as the first URL was. Raises InvalidRequest(image_url_blocked)."""
        target = self._checked(_parse(location, source.url))
        if source.url.scheme == "https" and target.url.scheme != "https":
            raise blocked("the URL redirects from https to something else")
        return target

    def may_reach(self, address: Address) -> bool:
        """Whether a name of the public internet may stand for this address."""
        return is_public(address) and not self._blocked.address(address)

    def may_reach_trusted(self, address: Address) -> bool:
        """The same for a name in allowed_hosts."""
        return not self._blocked.address(address)

    def _checked(self, url: httpx.URL) -> Target:
        if url.scheme not in _PORTS:
            raise blocked("only http://, https:// and data: URLs are fetched")
        if not url.host:
            raise blocked("the URL has no host")
        if url.userinfo:
            raise blocked("URLs with a user name or password are not fetched")
        host = url.raw_host.decode("ascii").lower()
        port = _PORTS[url.scheme] if url.port is None else url.port
        if self._blocked.name(host):
            raise blocked("the operator blocks the URL's host")
        if (f"[{host}]:{port}" if ":" in host else f"{host}:{port}") in self._allowed:
            return Target(url, host, trusted=True)
        if self._only and not self._only.name(host):
            raise blocked("the URL's host is not one that the operator named")
        if port not in _PORTS.values():
            raise blocked(f"port {port} is not fetched from")
        self._check_host(host)
        return Target(url, host, trusted=False)

    def _check_host(self, host: str) -> None:
        try:
            address = literal(host)
        except ValueError as error:
            raise blocked("the URL's host is neither a plain address nor a plain name") from error
        if address is not None:
            if not self.may_reach(address):
                raise blocked("the URL's host is not on the public internet")
        elif len(host) > _LONGEST_NAME or not _NAME.fullmatch(host):
            raise blocked("the URL's host is not a name")
        elif host == "localhost" or host.endswith(".localhost"):
            raise blocked("the URL's host is not on the public internet")


def blocked(reason: str) -> InvalidRequest:
    """The error of every rule here."""
    return InvalidRequest(f"{reason}.", code="image_url_blocked")


def _parse(text: str, base: httpx.URL | None = None) -> httpx.URL:
    if len(text) > _LONGEST_URL:
        raise blocked(
            f"an image is an http(s) URL of up to {_LONGEST_URL} characters or data:image/...;base64,...; bare base64 is not"
            " taken"
        )
    # Parsers disagree about these; whoever sends one wants them to.
    if any(character <= " " or character in "\\\x7f" for character in text):
        raise blocked("the URL has spaces, control characters or backslashes in it")
    try:
        return httpx.URL(text) if base is None else base.join(text)
    except (httpx.InvalidURL, ValueError) as error:
        raise blocked("this is not a URL; only http://, https:// and data: URLs are fetched") from error
