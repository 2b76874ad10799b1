"""Redirects: each hop is checked as the first URL was."""

import re

import pytest

from tests.serving.access.test_fetch import BLOCKED
from tests.serving.access.test_guard import PICTURE, one_site
from tests.serving.access.web import OTHER, PUBLIC, Bench, Internet, Server, on_internet, redirect, reply

ELSEWHERE = [
    url
    for url in BLOCKED
    if re.match(r"[a-z]+:(//[^/]|[a-z])|file", url) and "\n" not in url and url.isascii()
]
ELSEWHERE += [
    "FILE:///etc/passwd",
    "//10.0.0.1/",
    "//localhost",
    "http://photos.example:x/",
    "data:image/png;base64,eA==",
]
"""What leads away from the host that answers so; anything else is a path there."""


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_redirect_is_checked_as_the_first_url(scheme: str) -> None:
    """Whatever is refused when it is sent is refused when a public host sends us there."""
    port = 443 if scheme == "https" else 80
    internet = Internet({"photos.example": [[PUBLIC]]}, tls=scheme == "https")
    internet.at[PUBLIC, port] = Server(lambda path: redirect(ELSEWHERE[int(path[1:])]))

    async def scenario(bench: Bench) -> None:
        for at in range(len(ELSEWHERE)):
            await bench.refused(f"{scheme}://photos.example/{at}", "image_url_blocked")

    on_internet(internet, scenario)

    assert len(ELSEWHERE) > 40
    assert {address for address, _ in internet.dialled} == {PUBLIC}
    assert len(internet.at[PUBLIC, port].requests) == len(ELSEWHERE)


def test_a_redirect_to_a_name_of_a_private_address_is_blocked() -> None:
    """The second host's look-up is checked too."""
    internet = one_site(redirect("http://inside.example/admin"))
    internet.names["inside.example"] = [["10.0.0.7"]]

    async def scenario(bench: Bench) -> None:
        await bench.refused("http://photos.example/", "image_url_blocked")

    on_internet(internet, scenario)

    assert internet.looked_up == ["photos.example", "inside.example"]
    assert internet.dialled == [(PUBLIC, 80)]


def test_a_redirect_back_to_a_name_that_turned_private_is_blocked() -> None:
    """A hop on a new connection is looked up and checked anew."""
    internet = Internet({"turns.example": [[PUBLIC], ["169.254.169.254"]]})
    internet.at[PUBLIC, 80] = Server(
        lambda _: reply(302, b"", "Location: http://turns.example/b", "Connection: close")
    )

    async def scenario(bench: Bench) -> None:
        await bench.refused("http://turns.example/a", "image_url_blocked")

    on_internet(internet, scenario)

    assert internet.dialled == [(PUBLIC, 80)]


def test_redirects_go_where_they_may() -> None:
    """Relative ones, to another public host, from http to https; never from https to http, nor to another port."""
    answers = {
        "/relative": redirect("../end"),
        "/other": redirect("https://other.example/end"),
        "/down": redirect("http://photos.example/end"),
        "/port": redirect("https://photos.example:8443/end"),
        "/query": redirect("?now"),
    }
    servers = {
        (PUBLIC, 443): Server(lambda path: answers.get(path, PICTURE)),
        (PUBLIC, 80): Server(lambda path: redirect("https://photos.example/end")),
        (OTHER, 443): Server(lambda path: PICTURE),
    }
    internet = Internet({"photos.example": [[PUBLIC]], "other.example": [[OTHER]]}, servers, tls=True)

    async def scenario(bench: Bench) -> None:
        for path in ("/relative", "/other", "/query"):
            assert await bench.data(f"https://photos.example{path}") == b"picture"
        assert await bench.data("http://photos.example/up") == b"picture"
        for path in ("/down", "/port"):
            await bench.refused(f"https://photos.example{path}", "image_url_blocked")

    on_internet(internet, scenario)

    assert [head.split()[1] for head in servers[PUBLIC, 443].requests] == [
        "/relative", "/end", "/other", "/query", "/query?now", "/end", "/down", "/port",
    ]  # fmt: skip
    assert internet.at[PUBLIC, 80].connections == 1


def test_redirects_are_counted_over_all_hosts() -> None:
    """Two hosts that send us to one another end at the limit."""
    servers = {
        (PUBLIC, 80): Server(lambda _: redirect("http://b.example/")),
        (OTHER, 80): Server(lambda _: redirect("http://a.example/")),
    }
    internet = Internet({"a.example": [[PUBLIC]], "b.example": [[OTHER]]}, servers)

    async def scenario(bench: Bench) -> None:
        error = await bench.refused("http://a.example/", "image_fetch_failed")
        assert "more than 5 times" in error.message

    on_internet(internet, scenario)

    assert sum(len(server.requests) for server in servers.values()) == 6
