"""What a URL may reach and what comes of it. Only loopback servers of this test are ever dialled."""

import asyncio
import gzip
import subprocess
import sys
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address

import httpcore
import pytest

from serving.access.address import is_public
from serving.access.fetch import Fetcher
from serving.access.guard import BlockedError, GuardedBackend
from tests.serving.access.web import Server, code_of, reply, with_server, without_server
from toolkit.core.clock import SystemClock
from toolkit.core.errors import OutOfTime, ToolkitError

BLOCKED = [
    "file:///etc/passwd", "/etc/passwd", "ftp://example.com/a.png", "gopher://127.0.0.1/", "iVBORw0KGgo=",
    "http:///a.png", "http://", "javascript:alert(1)", "//example.com/a.png", "", "http://[::1", "http://a b/",
    "http://127.0.0.1/", "http://127.1/", "http://127.0.1/", "http://0x7f000001/", "http://0x7f.0.0.1/",
    "http://2130706433/", "http://0177.0.0.1/", "http://017700000001/", "http://[::1]/", "http://[::ffff:127.0.0.1]/",
    "http://[0:0:0:0:0:ffff:7f00:1]/", "http://[::127.0.0.1]/", "http://[fe80::1%25eth0]/", "http://localhost/",
    "http://LOCALHOST/", "http://a.localhost/", "http://localhost./", "http://127.0.0.1./", "http://0.0.0.0/",
    "http://0/", "http://169.254.169.254/latest/meta-data", "http://10.0.0.1/", "http://192.168.0.1/",
    "http://172.16.9.9/", "http://100.64.0.1/", "http://[fd00::1]/", "http://[64:ff9b::7f00:1]/", "http://[2002:7f00:1::]/",
    "http://224.0.0.1/", "http://1.1.1.1:22/", "http://example.com:8080/", "http://example.com./",
    "http://user:pw@example.com/", "http://user@example.com/", "http://127.0.0.1\\@example.com/",
    "http://example.com/\r\nHost: x", "http://\u2460\u2461\u2466.\u24ea.\u24ea.\u2460/", "http://127\u30020\u30020\u30021/",
    "http://example.com/" + "a" * 9000, "A" * 1_000_000,
]  # fmt: skip


def test_blocked_urls_reach_nobody() -> None:
    """Other schemes, paths, every spelling of a local address: refused without a look-up."""

    async def scenario(fetcher: Fetcher) -> None:
        answers = {url: await code_of(fetcher, url) for url in BLOCKED}
        assert answers == dict.fromkeys(BLOCKED, "image_url_blocked")

    without_server(scenario)


@pytest.mark.parametrize(
    "host",
    [
        "a..example", ".example", "a_b!.example", "a%2eexample", "x" * 64 + ".example", ".".join(["ab"] * 90), "a*.example",
        "1.2.3.4%25lo", "[8.8.8.8]", "[::ffff:8.8.8.8]:0", "8.8.8.8:0", "example.com:99999", "example.com:0", "example.com:-80",
    ],
)  # fmt: skip
def test_hosts_that_are_no_names(host: str) -> None:
    """Nobody is asked about them."""

    async def scenario(fetcher: Fetcher) -> None:
        assert await code_of(fetcher, f"http://{host}/a.png") == "image_url_blocked"

    without_server(scenario)


@pytest.mark.parametrize(
    "addresses", [["127.0.0.1"], ["8.8.8.8", "10.0.0.1"], ["2606:4700::1111", "::1"], ["169.254.169.254"], []]
)
def test_name_with_any_private_address_is_blocked(addresses: list[str]) -> None:
    """One private address among public ones is enough, and nothing is dialled."""
    asked = []

    async def resolve(host: str, port: int) -> list[IPv4Address | IPv6Address]:
        asked.append((host, port))
        return [ip_address(address) for address in addresses]

    async def scenario(fetcher: Fetcher) -> None:
        with pytest.raises(ToolkitError) as caught:
            await fetcher.fetch("http://rebind.example/a.png")
        assert caught.value.code.code == "image_url_blocked"
        assert not any(address in caught.value.message for address in addresses)

    without_server(scenario, resolve)
    assert asked == [("rebind.example", 80)]


def test_checked_addresses_are_the_dialled_ones() -> None:
    """One look-up; its addresses are tried in turn, so a later answer of the name server changes nothing."""
    dialled = []

    class Inner(httpcore.AsyncNetworkBackend):
        async def connect_tcp(
            self, host: str, port: int, timeout: float | None = None, local_address: str | None = None,
            socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
        ) -> httpcore.AsyncNetworkStream:  # fmt: skip
            dialled.append((host, port, timeout))
            raise httpcore.ConnectError

    async def resolve(host: str, port: int) -> list[IPv4Address | IPv6Address]:
        return [ip_address("8.8.8.8"), ip_address("1.1.1.1")] if not dialled else [ip_address("127.0.0.1")]

    async def scenario() -> None:
        backend = GuardedBackend(Inner(), resolve, is_public)
        with pytest.raises(httpcore.ConnectError):
            await backend.connect_tcp("two.example", 443, timeout=4.0)
        with pytest.raises(BlockedError):
            await backend.connect_tcp("two.example", 443, timeout=4.0)

    asyncio.run(scenario())
    assert dialled == [("8.8.8.8", 443, 2.0), ("1.1.1.1", 443, 4.0)]


def test_name_that_does_not_resolve() -> None:
    """A failed download, not a blocked one; the resolver says nothing to the caller."""

    async def resolve(host: str, port: int) -> list[IPv4Address | IPv6Address]:
        raise OSError("secret resolver")

    async def scenario(fetcher: Fetcher) -> None:
        with pytest.raises(ToolkitError, match=r"does not resolve\.$") as caught:
            await fetcher.fetch("https://nowhere.example/a.png")
        assert caught.value.code.code == "image_fetch_failed"

    without_server(scenario, resolve)


def test_allowed_host_is_fetched_over_one_connection() -> None:
    """Bytes come back as sent, connections are kept, and only harmless headers go out."""

    async def scenario(fetcher: Fetcher, server: Server) -> None:
        assert (await fetcher.fetch(server.url("/a"))).data == b"picture"
        assert (await fetcher.fetch(server.url("/b"))).data == b"picture"

    server = with_server(lambda _: reply(200, b"picture", "Set-Cookie: a=b"), scenario)

    assert server.connections == 1
    assert "accept-encoding: identity" in server.requests[0].lower()
    assert "cookie" not in server.requests[1].lower()


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy would dial for us, past every check."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")

    async def scenario(fetcher: Fetcher, server: Server) -> None:
        assert (await fetcher.fetch(server.url())).data == b"direct"

    with_server(lambda _: reply(200, b"direct"), scenario)


@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.1:1/",
        "http://10.0.0.1/",
        "http://localhost/",
        "file:///etc/passwd",
        "http://169.254.169.254/latest",
        "http://[::1]/",
    ],
)
def test_redirect_to_a_private_place_is_blocked(location: str) -> None:
    """Every hop is checked as the first one."""

    async def scenario(fetcher: Fetcher, server: Server) -> None:
        assert await code_of(fetcher, server.url()) == "image_url_blocked"

    server = with_server(lambda _: reply(302, b"", f"Location: {location}"), scenario)

    assert len(server.requests) == 1


def test_redirects_are_followed_a_few_times() -> None:
    """Relative ones too; a loop ends at the limit."""

    async def scenario(fetcher: Fetcher, server: Server) -> None:
        assert (await fetcher.fetch(server.url("/start"))).data == b"found"
        server.requests.clear()
        assert await code_of(fetcher, server.url("/loop")) == "image_fetch_failed"
        assert len(server.requests) == 3
        assert await code_of(fetcher, server.url("/lost")) == "image_fetch_failed"

    answers = {"/start": reply(307, b"x", "Location: end"), "/end": reply(200, b"found"), "/lost": reply(301)}
    with_server(lambda path: answers.get(path, reply(302, b"", "Location: /loop")), scenario, max_redirects=2)


FAILURES = {
    "404": (reply(404, b"secret page"), "image_fetch_failed"),
    "500": (reply(500), "image_fetch_failed"),
    "204": (b"HTTP/1.1 204 X\r\n\r\n", "image_fetch_failed"),
    "empty": (reply(200), "image_fetch_failed"),
    "gzip": (reply(200, gzip.compress(bytes(9_000_000)), "Content-Encoding: gzip"), "image_fetch_failed"),
    "announces too much": (b"HTTP/1.1 200 X\r\nContent-Length: 99999999\r\n\r\n", "image_too_large"),
    "sends too much": (
        b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n" + b"3e8\r\n" + bytes(1000) + b"\r\n",
        "image_too_large",
    ),
    "breaks off": (
        b"HTTP/1.1 200 X\r\nContent-Length: 90\r\nConnection: close\r\n\r\nabc",
        "image_fetch_failed",
    ),
    "is not HTTP": (b"SSH-2.0-OpenSSH_9\r\n\r\n", "image_fetch_failed"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_answers_that_are_no_image(name: str) -> None:
    """Each has its code; nothing of the answer is echoed."""
    raw, expected = FAILURES[name]

    async def scenario(fetcher: Fetcher, server: Server) -> None:
        with pytest.raises(ToolkitError) as caught:
            await fetcher.fetch(server.url())
        assert caught.value.code.code == expected
        assert "secret" not in caught.value.message
        assert "127.0.0.1" not in caught.value.message

    with_server(lambda _: raw, scenario, max_image_bytes=900)


def test_total_time_is_bounded() -> None:
    """A server that trickles or is silent ends at the URL limit, or at the request's own deadline, whichever is first."""

    async def scenario(fetcher: Fetcher, server: Server) -> None:
        assert await code_of(fetcher, server.url()) == "image_fetch_failed"
        with pytest.raises(OutOfTime) as caught:
            await fetcher.fetch(server.url(), SystemClock().monotonic() + 0.01)
        assert caught.value.hop == "fetch"

    with_server(lambda _: None, scenario, url_timeout_s=0.05)


@pytest.mark.slow
def test_httpx_is_loaded_with_the_first_url() -> None:
    """A gateway that is only sent data: URIs starts without it."""
    code = "import sys, serving.gateway; print([name for name in ('httpx', 'aiodns', 'certifi') if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert answer.stdout == "[]\n"
