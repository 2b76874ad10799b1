"""The operator's lists of hosts."""

from ipaddress import ip_address

import pytest
from pydantic import ValidationError

from serving.access.hosts import Hosts
from serving.config import AccessConfig
from tests.serving.access.web import OTHER, PUBLIC, Bench, Internet, Server, on_internet, redirect, reply

PICTURE = reply(200, b"picture")


@pytest.mark.parametrize(
    ("pattern", "named", "other"),
    [
        ("example.com", ["example.com"], ["www.example.com", "example.com.evil.org", "notexample.com", "com"]),
        ("*.example.com", ["a.example.com", "b.a.example.com"], ["example.com", "badexample.com", "example.com.b"]),
        ("*.com", ["example.com"], ["com", "example.org"]),
        ("8.8.8.8", ["8.8.8.8"], ["8.8.8.80", "8.8.4.4"]),
        ("203.0.113.0/24", ["203.0.113.9"], ["203.0.114.1", "203.0.113.0.example"]),
        ("2606:4700::/32", ["2606:4700::1"], ["2606:4701::1", "8.8.8.8"]),
        ("XN--Bcher-kva.Example", ["xn--bcher-kva.example"], ["bcher-kva.example"]),
    ],
)  # fmt: skip
def test_what_a_pattern_names(pattern: str, named: list[str], other: list[str]) -> None:
    """Whole names, whole labels, whole networks."""
    hosts = Hosts([pattern])

    assert [host for host in named + other if hosts.name(host)] == named


def test_an_empty_list_names_nobody() -> None:
    """It is not a list of everybody."""
    assert not Hosts([])
    assert not Hosts([]).name("example.com")
    assert not Hosts([]).address(ip_address("8.8.8.8"))


@pytest.mark.parametrize("field", ["only_hosts", "blocked_hosts"])
@pytest.mark.parametrize(
    "wrong",
    ["", "*", "*.", "a b", "https://example.com", "example.com:80", "a.*.com", "b\u00fccher.example", "1.2.3",
     "example.com.", "10.0.0.1/8", "[::1]", "example.com/a"],
)  # fmt: skip
def test_patterns_that_would_never_match_are_refused(field: str, wrong: str) -> None:
    """A list that guards must not have a line that does nothing."""
    with pytest.raises(ValidationError, match="write a name"):
        AccessConfig.model_validate({field: [wrong]})


def internet() -> Internet:
    names = {name: [[PUBLIC]] for name in ("example.com", "a.example.com", "bad.example.com")}
    servers = {
        (PUBLIC, 80): Server(lambda path: redirect("http://other.example/") if path == "/away" else PICTURE),
        (OTHER, 80): Server(lambda _: PICTURE),
    }
    return Internet({**names, "other.example": [[OTHER]], "alias.example": [[PUBLIC, OTHER]]}, servers)


def test_only_these_hosts() -> None:
    """Nothing else is looked up, by redirect neither."""

    async def scenario(bench: Bench) -> None:
        assert await bench.data("http://A.Example.com/") == b"picture"
        assert await bench.data(f"http://{PUBLIC}/") == b"picture"
        for url in (
            "http://example.com/",
            "http://other.example/",
            f"http://{OTHER}/",
            "http://a.example.com/away",
        ):
            error = await bench.refused(url, "image_url_blocked")
            assert error.message == "the URL's host is not one that the operator named."

    web = internet()
    on_internet(web, scenario, only_hosts=("*.example.com", PUBLIC))

    assert web.looked_up == ["a.example.com"]


def test_blocked_hosts() -> None:
    """By name before the look-up, by network after it; whatever the other lists say."""

    async def scenario(bench: Bench) -> None:
        assert await bench.data("http://a.example.com/") == b"picture"
        for url in ("http://bad.example.com/", "http://bad.example.com:8000/", "http://x.evil.example/"):
            error = await bench.refused(url, "image_url_blocked")
            assert error.message == "the operator blocks the URL's host."
        for url in (
            f"http://{OTHER}/",
            "http://other.example/",
            "http://alias.example/",
            "http://a.example.com/away",
        ):
            await bench.refused(url, "image_url_blocked")

    web = internet()
    on_internet(
        web,
        scenario,
        allowed_hosts=("bad.example.com:8000",),
        only_hosts=("*.example.com", "*.example", OTHER),
        blocked_hosts=("bad.example.com", "*.evil.example", "151.101.0.0/16"),
    )

    assert {address for address, _ in web.dialled} == {PUBLIC}
    assert "bad.example.com" not in web.looked_up


def test_allowed_hosts_may_be_private_but_not_blocked() -> None:
    """host:port by name too, beside only_hosts; a network that is blocked stays so."""
    web = Internet({"minio.internal": [["10.0.0.9"]], "db.internal": [["10.1.0.9"]]})
    web.at["10.0.0.9", 9000] = Server(lambda _: PICTURE)

    async def scenario(bench: Bench) -> None:
        assert await bench.data("http://minio.internal:9000/") == b"picture"
        for url in ("http://minio.internal/", "http://minio.internal:9001/", "http://db.internal:9000/"):
            await bench.refused(url, "image_url_blocked")

    on_internet(
        web,
        scenario,
        allowed_hosts=("minio.internal:9000", "db.internal:9000"),
        only_hosts=("*.example.com",),
        blocked_hosts=("10.1.0.0/16",),
    )

    assert web.dialled == [("10.0.0.9", 9000)]
