"""Lists of hosts that an operator writes: names, *.names, addresses, networks. Pure.

Hosts are compared as lower-case ASCII (xn-- for other scripts), which is how a URL's parser hands them over.
"""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

Address = IPv4Address | IPv6Address


class Hosts:
    """What a list names. `*.example.com` is every name below example.com, not example.com itself."""

    def __init__(self, patterns: Iterable[str]) -> None:
        patterns = [pattern.lower() for pattern in patterns]
        self._networks = [ip_network(pattern) for pattern in patterns if _is_network(pattern)]
        self._names = frozenset(pattern for pattern in patterns if not pattern.startswith("*."))
        self._suffixes = tuple(pattern[1:] for pattern in patterns if pattern.startswith("*."))

    def __bool__(self) -> bool:
        return bool(self._names or self._suffixes)

    def name(self, host: str) -> bool:
        """Whether the list names this host of a URL, which may be an address."""
        try:
            return self.address(ip_address(host))
        except ValueError:
            return host in self._names or host.endswith(self._suffixes)

    def address(self, address: Address) -> bool:
        """Whether the list has this address, alone or in a network."""
        return any(address in network for network in self._networks)


def _is_network(pattern: str) -> bool:
    try:
        ip_network(pattern)
    except ValueError:
        return False
    return True
