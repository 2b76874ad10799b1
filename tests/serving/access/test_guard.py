"""The rules for strangers' URLs, on a little internet where every dial is seen (docs/decisions/0016 has the table of all)."""

import asyncio
import re
import socket
from pathlib import Path

import pytest

from tests.serving.access.test_address import NOT_PUBLIC
from tests.serving.access.web import (
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
