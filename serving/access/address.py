"""Which addresses a URL from a stranger may reach: only ones that anybody on the internet could reach. Pure."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

# What `ipaddress.is_global` lets through, in one Python version or another, though it leads elsewhere: protocol
# assignments and 6to4 relays; IPv6 forms with an IPv4 address inside (6to4, NAT64, IPv4-compatible and
# -translated); local NAT64; former site-local addresses.
_REFUSED_V4 = (IPv4Network("192.0.0.0/24"), IPv4Network("192.88.99.0/24"))
_REFUSED_V6 = tuple(
    IPv6Network(network)
    for network in (
        "::/8",
        "64:ff9b::/96",
        "64:ff9b:1::/48",
        "100::/64",
        "2001::/23",
        "2002::/16",
        "3fff::/20",
        "5f00::/16",
        "fec0::/10",
    )
)


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Whether the address is globally reachable unicast, with no other address hidden inside."""
    if not address.is_global or address.is_multicast or address.is_reserved or address.is_unspecified:
        return False
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _REFUSED_V4)
    return address.scope_id is None and not any(address in network for network in _REFUSED_V6)


def literal(host: str) -> IPv4Address | IPv6Address | None:
    """The address that `host` spells in the one plain way, or None for a name. Raises ValueError for other spellings.

    127.1, 0x7f000001, 2130706433, 0177.0.0.1 and the like are numbers to some resolvers and names to others.
    """
    try:
        return ip_address(host)
    except ValueError:
        last = host.rstrip(".").rpartition(".")[2].lower()
        if not last or last.isdigit() or last.startswith("0x") or host.endswith(".") or ":" in host:
            raise
        return None
