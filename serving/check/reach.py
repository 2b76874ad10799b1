"""Who reaches an address (pure)."""

from ipaddress import ip_address


def reached(host: str) -> bool:
    """Whether others than this machine reach it; a name is taken for one that they do, but for localhost."""
    try:
        return not ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"
