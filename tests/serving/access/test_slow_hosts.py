"""Hosts that are slow or broken cost their own images, nobody else's."""

import asyncio

import pytest

from tests.serving.access.web import OTHER, PUBLIC, Bench, Internet, Server, on_internet, reply
from toolkit.core.clock import VirtualClock
from toolkit.core.errors import ToolkitError

PICTURE = reply(200, b"picture")
OPENED = "toolkit_image_host_breakers_total"


def two_hosts(slow: bytes | None) -> Internet:
    """One host that answers so (None: never), one that works."""
    servers = {(PUBLIC, 80): Server(lambda _: slow), (OTHER, 80): Server(lambda _: PICTURE)}
    return Internet({"slow.example": [[PUBLIC]], "quick.example": [[OTHER]]}, servers)


def test_a_slow_host_takes_its_own_places_only() -> None:
    """A hundred images of it: some are being downloaded, some wait, the rest are refused at once; the others' go on."""
    internet = two_hosts(None)

    async def scenario(bench: Bench) -> None:
        urls = [f"http://slow.example/{number}" for number in range(100)]
        stuck = [asyncio.create_task(bench.data(url)) for url in urls]
        while not (refused := [task for task in stuck if task.done()]):
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
        refused = [task for task in stuck if task.done()]
        assert len(refused) == 100 - 16 - 64
        for number in range(20):
            assert await bench.data(f"http://quick.example/{number}") == b"picture"
        assert {key: value for key, value in bench.tally.gauges.items() if "held" not in key} == {
            "toolkit_image_downloads running": 16,
            "toolkit_image_downloads waiting": 64,
        }
        for task in stuck:
            task.cancel()
        ends = await asyncio.gather(*stuck, return_exceptions=True)
        busy = [end for end in ends if isinstance(end, ToolkitError)]
        assert {(end.code.code, end.status) for end in busy} == {("queue_full", 429)}

    tally = on_internet(internet, scenario)

    assert internet.at[PUBLIC, 80].connections == 16
    assert tally.counts == {
        "toolkit_image_fetches_total queue_full": 20,
        "toolkit_image_fetches_total downloaded": 20,
        "toolkit_image_fetches_total given_up": 80,
        "toolkit_image_download_bytes_total": 140,
    }


def test_waiting_ends_with_the_time_for_a_download() -> None:
    """Busy, since the image was never asked for; and the host is not blamed for it."""
    internet = two_hosts(PICTURE)

    async def scenario(bench: Bench) -> None:
        turns = (await bench.fetcher._downloader())._turns
        await turns.take("slow.example")
        for _ in range(2):
            error = await bench.refused("http://slow.example/", "queue_full")
            assert error.retry_after_s == 1.0
        turns.give_back("slow.example")
        assert await bench.data("http://slow.example/") == b"picture"

    tally = on_internet(internet, scenario, url_timeout_s=0.3, max_downloads_per_host=1, host_failures=2)

    assert OPENED not in tally.counts


def test_a_host_that_was_asked_late_is_not_blamed() -> None:
    """The turn came when most of the time was over: Busy, whatever the host makes of the rest."""
    internet = two_hosts(None)

    async def scenario(bench: Bench) -> None:
        turns = (await bench.fetcher._downloader())._turns
        for _ in range(2):
            await turns.take("slow.example")
            asyncio.get_running_loop().call_later(0.3, turns.give_back, "slow.example")
            await bench.refused("http://slow.example/", "queue_full")

    tally = on_internet(internet, scenario, url_timeout_s=0.4, max_downloads_per_host=1, host_failures=2)

    assert OPENED not in tally.counts


FAULTS = {
    "500": reply(500),
    "503": reply(503),
    "429": reply(429),
    "breaks off": b"HTTP/1.1 200 X\r\nContent-Length: 90\r\nConnection: close\r\n\r\nabc",
    "is not HTTP": b"SSH-2.0-OpenSSH_9\r\n\r\n",
    "silence": None,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_host_that_keeps_failing_is_left_alone(fault: str) -> None:
    """After three in a row nothing is sent for a while; then one may try. Other hosts are asked as before."""
    internet, clock = two_hosts(FAULTS[fault]), VirtualClock()

    async def scenario(bench: Bench) -> None:
        for _ in range(3):
            await bench.refused("http://slow.example/", "image_fetch_failed")
        error = await bench.refused("http://slow.example/", "image_host_failing")
        assert (error.status, error.code.retryable, error.retry_after_s) == (400, True, 2.0)
        assert await bench.data("http://quick.example/") == b"picture"
        assert internet.at[PUBLIC, 80].connections <= 3
        internet.at[PUBLIC, 80].answer = lambda _: PICTURE
        clock.advance(2.0)
        assert await bench.data("http://slow.example/") == b"picture"
        assert await bench.data("http://slow.example/") == b"picture"

    tally = on_internet(
        internet, scenario, clock=clock, host_failures=3, url_timeout_s=0.5 if fault == "silence" else 5
    )

    assert tally.counts[OPENED] == 1


def test_a_host_that_cannot_be_reached_is_left_alone() -> None:
    """No address, or nobody there."""
    internet = Internet({"closed.example": [[PUBLIC]]})

    async def scenario(bench: Bench) -> None:
        for name in ("closed.example", "nowhere.example"):
            for _ in range(3):
                await bench.refused(f"http://{name}/", "image_fetch_failed")
            await bench.refused(f"http://{name}/", "image_host_failing")

    tally = on_internet(internet, scenario, clock=VirtualClock(), host_failures=3)

    assert tally.counts[OPENED] == 2
    assert len(internet.dialled) == 3


MISTAKES = {
    "404": reply(404),
    "403": reply(403),
    "too large": reply(200, bytes(2000)),
    "empty": reply(200),
    "gzip": reply(200, b"x", "Content-Encoding: gzip"),
    "redirect to nowhere": reply(302),
    "redirect inside": reply(302, b"", "Location: http://10.0.0.1/"),
    "redirect loop": reply(302, b"", "Location: /"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_a_url_is_to_blame_for_is_not_held_against_its_host(mistake: str) -> None:
    """Whoever sends bad URLs of a good host does not take it from the others."""
    internet = two_hosts(MISTAKES[mistake])

    async def scenario(bench: Bench) -> None:
        for _ in range(8):
            with pytest.raises(ToolkitError):
                await bench.fetcher.fetch("http://slow.example/")
        internet.at[PUBLIC, 80].answer = lambda _: PICTURE
        assert await bench.data("http://slow.example/") == b"picture"

    tally = on_internet(internet, scenario, host_failures=2, max_image_bytes=1000)

    assert OPENED not in tally.counts


def test_who_gives_up_says_nothing_about_the_host() -> None:
    """Neither a client that leaves nor one whose own budget is short."""
    internet = two_hosts(None)

    async def scenario(bench: Bench) -> None:
        now = asyncio.get_running_loop().time()
        for _ in range(4):
            with pytest.raises(ToolkitError) as caught:
                await bench.fetcher.fetch("http://slow.example/", deadline=now + 0.01)
            assert caught.value.code.code == "ttft_budget_exceeded"
        internet.at[PUBLIC, 80].answer = lambda _: PICTURE
        assert await bench.data("http://slow.example/") == b"picture"

    tally = on_internet(internet, scenario, host_failures=2)

    assert OPENED not in tally.counts
    assert tally.counts["toolkit_image_fetches_total given_up"] == 4
