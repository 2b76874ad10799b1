"""The rules for strangers' URLs, on a little internet where every dial is seen (docs/decisions/0016 has the table of all)."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.serving.access.test_address import NOT_PUBLIC
from tests.serving.access.test_fetch import BLOCKED
from tests.serving.access.web import (
    OTHER,
    PUBLIC,
    Bench,
    Internet,
    Server,
    listening,
    on_internet,
    redirect,
    reply,
)
from toolkit.core.errors import ToolkitError

PICTURE = reply(200, b"picture")


def one_site(answer: bytes, name: str = "photos.example") -> Internet:
    """A public name with one server that always answers so."""
    return Internet({name: [[PUBLIC]]}, {(PUBLIC, 80): Server(lambda _: answer)})


def test_a_public_host_is_fetched() -> None:
    """The name is looked up once, its address dialled, its name asked for."""
    internet = one_site(PICTURE)

    async def scenario(bench: Bench) -> None:
        assert await bench.data("http://photos.example/a.png?size=2#top") == b"picture"
        assert await bench.data(f"http://{PUBLIC}/") == b"picture"

    tally = on_internet(internet, scenario)
    server = internet.at[PUBLIC, 80]

    assert internet.looked_up == ["photos.example"]
    assert internet.dialled == [(PUBLIC, 80)] * 2
    assert server.header("host") == ["photos.example", PUBLIC]
    assert server.requests[0].startswith("GET /a.png?size=2 HTTP/1.1")
    assert tally.counts["toolkit_image_fetches_total downloaded"] == 2
    assert tally.counts["toolkit_image_download_bytes_total"] == 14
    assert [name for name, seconds in tally.observed if seconds > 0] == ["toolkit_image_fetch_seconds"] * 2


def test_a_name_that_stands_for_no_public_address_is_not_dialled() -> None:
    """Every range, alone and beside a public address."""
    hidden = [address for address in NOT_PUBLIC if "%" not in address]
    names = {f"n{at}.example": [[address]] for at, address in enumerate(hidden)}
    names |= {f"m{at}.example": [[PUBLIC, address]] for at, address in enumerate(hidden)}
    internet = Internet(names, {(PUBLIC, 80): Server(lambda _: PICTURE)})

    async def scenario(bench: Bench) -> None:
        for name, ((*_, address),) in names.items():
            error = await bench.refused(f"http://{name}/a.png", "image_url_blocked")
            assert address not in error.message

    tally = on_internet(internet, scenario)

    assert internet.dialled == []
    assert tally.counts == {"toolkit_image_fetches_total image_url_blocked": 2 * len(hidden)}


def test_names_with_many_addresses_are_dialled_a_few_times() -> None:
    """All are checked, four are tried, both families; then the host has failed."""
    many = [f"2606:4700::{number:x}" for number in range(1, 200)] + [PUBLIC]
    internet = Internet({"many.example": [many]})

    async def scenario(bench: Bench) -> None:
        await bench.refused("http://many.example/", "image_fetch_failed")

    on_internet(internet, scenario)

    assert [address for address, _ in internet.dialled] == [
        "2606:4700::1",
        PUBLIC,
        "2606:4700::2",
        "2606:4700::3",
    ]


def test_an_answer_that_changes_is_not_asked_for_twice() -> None:
    """DNS rebinding: the look-up that was checked is the one that is dialled; the next connection is checked anew."""
    internet = Internet({"rebind.example": [[PUBLIC], ["127.0.0.1"]]})
    internet.at[PUBLIC, 80] = Server(lambda _: reply(200, b"picture", "Connection: close"))

    async def scenario(bench: Bench) -> None:
        assert await bench.data("http://rebind.example/") == b"picture"
        await bench.refused("http://rebind.example/", "image_url_blocked")

    on_internet(internet, scenario)

    assert internet.looked_up == ["rebind.example"] * 2
    assert internet.dialled == [(PUBLIC, 80)]


def test_the_systems_resolver_has_no_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing below the guard looks the name up again."""
    internet = one_site(PICTURE)

    def getaddrinfo(host: object, *_: object, **__: object) -> list[object]:
        raise AssertionError(f"{host!r} was looked up again")

    async def scenario(bench: Bench) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(socket, "getaddrinfo", getaddrinfo)
            patch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
            assert await bench.data("http://photos.example/") == b"picture"

    on_internet(internet, scenario)


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


def test_tls_knows_the_name_not_the_address() -> None:
    """SNI, Host and the certificate are those of the URL, though an address is dialled."""
    server = Server(lambda _: PICTURE)
    internet = Internet({"photos.example": [[PUBLIC]]}, {(PUBLIC, 443): server}, tls=True)

    async def scenario(bench: Bench) -> None:
        assert await bench.data("https://Photos.Example/a") == b"picture"

    on_internet(internet, scenario)

    assert server.names == ["photos.example"]
    assert server.header("host") == ["photos.example"]


def test_a_certificate_of_another_name_is_refused() -> None:
    """Whoever answers at the address must prove the name."""
    internet = Internet({"photos.example": [[PUBLIC]]}, {(PUBLIC, 443): Server(lambda _: PICTURE)}, tls=True)

    async def scenario(bench: Bench) -> None:
        internet.names["impostor.example"] = [[PUBLIC]]
        await bench.refused("https://impostor.example/", "image_fetch_failed")

    on_internet(internet, scenario)

    assert internet.at[PUBLIC, 443].requests == []


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_of_the_environment_sees_nothing(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would dial for us, past every check. Nor are its credentials read from ~/.netrc."""
    port = 443 if scheme == "https" else 80
    internet = Internet(
        {"photos.example": [[PUBLIC]]}, {(PUBLIC, port): Server(lambda _: PICTURE)}, tls=scheme == "https"
    )
    proxy = Server(lambda _: reply(200, b"from the proxy"))

    async def scenario(bench: Bench) -> None:
        async with listening([proxy]):
            for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
                monkeypatch.setenv(name, f"http://user:pw@127.0.0.1:{proxy.port}")
            monkeypatch.delenv("no_proxy", raising=False)
            internet.at["127.0.0.1", proxy.port] = proxy
            assert await bench.data(f"{scheme}://photos.example/") == b"picture"

    on_internet(internet, scenario)

    assert proxy.connections == 0
    assert internet.dialled == [(PUBLIC, port)]
    assert internet.at[PUBLIC, port].header("authorization") == []


@asynccontextmanager
async def writing(pieces: AsyncIterator[bytes], sent: list[int]) -> AsyncIterator[Server]:
    """A server that answers with a head and then these pieces, for as long as somebody reads."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            async for piece in pieces:
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                await writer.drain()
                sent.append(len(piece))
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = Server(lambda _: None)
    server.serve = serve  # type: ignore[method-assign]
    async with listening([server]):
        yield server


def test_a_drip_does_not_extend_the_time() -> None:
    """One deadline for the whole download: bytes that keep coming do not move it."""
    sent: list[int] = []
    internet = Internet({"slow.example": [[PUBLIC]]})

    async def drip() -> AsyncIterator[bytes]:
        while True:
            yield bytes(200)
            await asyncio.sleep(0.01)

    async def scenario(bench: Bench) -> None:
        async with writing(drip(), sent) as server:
            internet.at[PUBLIC, 80] = server
            error = await bench.refused("http://slow.example/", "image_fetch_failed")
            assert "took longer than 0.4 s" in error.message

    on_internet(internet, scenario, url_timeout_s=0.4)

    assert len(sent) > 3


def test_a_body_without_end_is_cut_at_the_limit() -> None:
    """What has not been announced is counted while it comes; the rest is not read."""
    sent: list[int] = []
    internet = Internet({"large.example": [[PUBLIC]]})

    async def flood() -> AsyncIterator[bytes]:
        while True:
            yield bytes(50_000)

    async def scenario(bench: Bench) -> None:
        async with writing(flood(), sent) as server:
            internet.at[PUBLIC, 80] = server
            await bench.refused("http://large.example/", "image_too_large")

    tally = on_internet(internet, scenario, max_image_bytes=1_000_000)

    assert 500_000 < tally.counts["toolkit_image_download_bytes_total"] <= 1_000_000
    assert sum(sent) < 8_000_000  # the rest is in the sockets' buffers


def test_a_body_in_crumbs_is_refused() -> None:
    """A chunk per byte would cost the event loop a thousand times what its bytes are worth."""
    internet = one_site(
        b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 40_000 + b"0\r\n\r\n"
    )

    async def scenario(bench: Bench) -> None:
        error = await bench.refused("http://photos.example/", "image_fetch_failed")
        assert "crumbs" in error.message

    tally = on_internet(internet, scenario)

    assert tally.counts["toolkit_image_download_bytes_total"] < 300


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate", "zstd", "identity, gzip", "x-unknown"])
def test_an_encoded_body_is_refused_unread(encoding: str) -> None:
    """None was accepted, so a small body cannot become a large one."""
    internet = one_site(reply(200, b"\x1f\x8b" + bytes(1000), f"Content-Encoding: {encoding}"))

    async def scenario(bench: Bench) -> None:
        await bench.refused("http://photos.example/", "image_fetch_failed")

    tally = on_internet(internet, scenario)

    assert internet.at[PUBLIC, 80].header("accept-encoding") == ["identity"]
    assert "toolkit_image_download_bytes_total" not in tally.counts


SECRET = b"secret-of-an-inner-service"


@pytest.mark.parametrize(
    "answer",
    [
        reply(403, SECRET),
        reply(500, SECRET, "X-Debug: secret-of-an-inner-service"),
        b"HTTP/1.1 200 secret-of-an-inner-service\r\n\r\n",
        b"secret-of-an-inner-service 6.0 ready\r\n",
        reply(200, SECRET, "Content-Encoding: secret-of-an-inner-service"),
        redirect("http://10.0.0.1/secret-of-an-inner-service"),
        redirect("secret-of-an-inner-service://"),
    ],
)
def test_errors_echo_neither_addresses_nor_answers(answer: bytes) -> None:
    """What the gateway can reach, and what is said there, is not for callers."""
    internet = one_site(answer)

    async def scenario(bench: Bench) -> None:
        for path in ("http://photos.example/", "http://nowhere.example/"):
            with pytest.raises(ToolkitError) as caught:
                await bench.fetcher.fetch(path)
            told = str(caught.value.body("req-1"))
            assert not any(word in told for word in ("secret", PUBLIC, "10.0.0.1", "10.9.8.7"))

    on_internet(internet, scenario, url_timeout_s=0.3)


def test_no_cookie_is_kept() -> None:
    """Neither over redirects nor over requests."""
    baked = "Set-Cookie: who=you; Path=/"
    answers = {"/a": reply(302, b"", "Location: /b", baked), "/b": reply(200, b"picture", baked)}
    internet = Internet({"photos.example": [[PUBLIC]]}, {(PUBLIC, 80): Server(lambda path: answers[path])})

    async def scenario(bench: Bench) -> None:
        await bench.data("http://photos.example/a")
        await bench.data("http://photos.example/a")

    on_internet(internet, scenario)

    assert len(internet.at[PUBLIC, 80].requests) == 4
    assert internet.at[PUBLIC, 80].header("cookie") == []


def test_every_rule_has_its_test() -> None:
    """The table on the decision's page names tests that there are."""
    here = Path(__file__).parent
    page = here.parents[2] / "docs/decisions/0016-what-a-url-may-reach-and-cost.md"
    named = re.findall(r"^\| .+ \| `(\w+\.py)::(\w+)` \|$", page.read_text(encoding="utf-8"), re.MULTILINE)

    assert len(named) >= 40
    assert [(file, test) for file, test in named if f"def {test}(" not in (here / file).read_text()] == []
