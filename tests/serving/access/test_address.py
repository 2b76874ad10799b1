"""Which addresses strangers' URLs may reach."""

from ipaddress import ip_address

import pytest

from serving.access.address import is_public, literal

NOT_PUBLIC = [
    "0.0.0.0", "0.1.2.3", "10.1.2.3", "100.64.0.1", "127.0.0.1", "127.8.8.8", "169.254.169.254", "172.16.0.1",
    "192.0.0.8", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "203.0.113.9", "224.0.0.1", "240.0.0.1",
    "255.255.255.255", "::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "64:ff9b::7f00:1",
    "64:ff9b::808:808", "64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1", "2002:7f00:1::1", "2002:808:808::1",
    "3fff::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1",
]  # fmt: skip


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_addresses_that_are_not_public(address: str) -> None:
    """Private, local, shared, multicast, documentation, and every form that hides an IPv4 address."""
    assert not is_public(ip_address(address))


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "1.1.1.1", "193.0.0.1", "2606:4700::1111", "2a00:1450:4001::1"]
)
def test_public_addresses(address: str) -> None:
    """Ordinary unicast addresses are reached."""
    assert is_public(ip_address(address))


@pytest.mark.parametrize(
    "host",
    [
        "127.1",
        "127.0.1",
        "0x7f000001",
        "0x7f.1",
        "2130706433",
        "0177.0.0.1",
        "127.0.0.1.",
        "example.com.",
        "1.2.3.4.5",
        "a.0x1",
    ],
)
def test_other_spellings_are_no_names(host: str) -> None:
    """What some resolver may take for a number is not looked up."""
    with pytest.raises(ValueError, match="does not appear"):
        literal(host)


def test_plain_hosts() -> None:
    """Names are names and addresses are addresses."""
    assert literal("example.com") is None
    assert literal("xn--bcher-kva.example") is None
    assert literal("192.0.2.1") == ip_address("192.0.2.1")
    assert literal("::1") == ip_address("::1")
