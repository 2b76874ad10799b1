"""Gateways at a real server: each has its share, none waits, nothing is given twice, whoever is killed or frozen."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from tests.serving.access.valkey import Valkey
from tests.serving.schedule.shared.mini import EACH, PAGES, Mini
from toolkit.core.sample import SloClass

TTL_S = 1.5
PATIENCE_S = 20.0
"""On a machine that is busy."""


async def until(condition: Callable[[], bool], within_s: float = PATIENCE_S) -> float:
    """Seconds that it took."""
    began = time.monotonic()
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.005)
    return time.monotonic() - began


@contextlib.asynccontextmanager
async def watched(*minis: Mini) -> AsyncIterator[None]:
    """At no moment do they hold more than the pool."""

    async def watch() -> None:
        while True:
            assert sum(mini.held for mini in minis) <= PAGES, [mini.held for mini in minis]
            await asyncio.sleep(0.002)

    task = asyncio.create_task(watch())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


class Process:
    """A Mini of its own that takes all it can get."""

    def __init__(self, url: str, ttl_s: float) -> None:
        command = [
            "setpriv",
            "--pdeathsig",
            "KILL",
            sys.executable,
            "-m",
            "tests.serving.schedule.shared.mini",
        ]
        self.popen = subprocess.Popen([*command, url, str(ttl_s)], stdout=subprocess.PIPE, bufsize=0)
        assert self.popen.stdout is not None
        os.set_blocking(self.popen.stdout.fileno(), False)
        self._text = b""

    def told(self) -> tuple[int, int]:
        """Pages held and requests revoked, as it printed last."""
        assert self.popen.stdout is not None
        self._text = (self._text + (self.popen.stdout.read(65_536) or b""))[-200:]
        lines = [line.split() for line in self._text.split(b"\n")[1:-1]]
        return (int(lines[-1][0]), int(lines[-1][1])) if lines else (0, 0)

    def end(self) -> None:
        self.popen.kill()
        self.popen.wait()
        assert self.popen.stdout is not None
        self.popen.stdout.close()


@contextlib.contextmanager
def process(url: str, ttl_s: float) -> Iterator[Process]:
    made = Process(url, ttl_s)
    try:
        yield made
    finally:
        made.end()


@pytest.mark.proof
def test_a_flood_through_one_gateway_leaves_another_class_at_the_other_its_share() -> None:
    """Standard weighs four times as much as batch: four fifths of the pool."""

    async def main() -> None:
        with Valkey() as server:
            async with Mini(server.url, TTL_S) as one, Mini(server.url, TTL_S) as two, watched(one, two):
                await until(lambda: one.granted > 0 and two.granted > 0)
                one.offer(PAGES // EACH, SloClass.BATCH)
                await until(lambda: one.held >= 0.9 * PAGES)
                assert 0 < two.granted < PAGES // 10

                two.offer(PAGES // EACH, SloClass.STANDARD)
                assert two.held > 0  # at once: what lies ready for who comes next

                def fair() -> bool:
                    one.turn_over(2, SloClass.BATCH)
                    return two.held >= 0.8 * PAGES - 2 * EACH

                await until(fair)
                assert one.held >= 0.2 * PAGES - 4 * EACH
                assert not one.revoked + two.revoked

            async with asyncio.timeout(PATIENCE_S), Mini(server.url, TTL_S) as three:
                await until(lambda: three.granted > 0.9 * PAGES)  # they left in order: it is free at once

    asyncio.run(main())


@pytest.mark.slow
def test_killed_or_frozen_a_gateway_loses_its_pages_within_the_ttl_and_who_wakes_ends_its_own_requests() -> (
    None
):
    async def main() -> None:
        with Valkey() as server, process(server.url, 1.0) as other:
            async with Mini(server.url, 1.0) as one:
                await until(lambda: other.told()[0] >= 0.9 * PAGES)
                one.offer(PAGES // EACH)

                other.popen.send_signal(signal.SIGSTOP)
                await until(lambda: one.held == PAGES)
                other.popen.send_signal(signal.SIGCONT)
                await until(lambda: other.told()[1] > 0)
                await until(lambda: other.told()[0] + one.held <= PAGES)
                assert not one.revoked

                one.let_go()
                await until(lambda: other.told()[0] >= 0)
                one.offer(PAGES // EACH)
                os.kill(other.popen.pid, signal.SIGKILL)
                await until(lambda: one.held == PAGES)
                assert not one.revoked

    asyncio.run(main())


@pytest.mark.proof
def test_what_a_killed_gateway_held_is_with_the_other_within_the_ttl() -> None:
    """Leased again, not only free in the books."""

    async def main() -> None:
        with Valkey() as server, process(server.url, 4.0) as other:
            async with Mini(server.url, 4.0) as one:
                await until(lambda: other.told()[0] >= 0.9 * PAGES and one.sharing.state.gateways == 2)
                one.offer(PAGES // EACH)
                os.kill(other.popen.pid, signal.SIGKILL)

                assert await until(lambda: one.held == PAGES) <= 4.0

    asyncio.run(main())


@pytest.mark.proof
def test_without_the_server_each_works_on_its_share_and_then_they_agree_again() -> None:
    """Killed with all it knew, then started again empty; no request is ended for it where the shares suffice."""

    async def main() -> None:
        with Valkey() as server:
            async with Mini(server.url, TTL_S) as one, Mini(server.url, TTL_S) as two, watched(one, two):
                await until(lambda: one.granted >= PAGES // 3 and two.granted >= PAGES // 3)
                one.offer(PAGES // 4 // EACH)
                assert one.held == PAGES // 4

                server.kill()
                await until(
                    lambda: one.sharing.state.standing.value == two.sharing.state.standing.value == "alone"
                )
                one.offer(PAGES // EACH)
                two.offer(PAGES // EACH)
                await until(lambda: one.held == two.held == PAGES // 2)
                assert one.sharing.ready
                assert one.sharing.state.server.startswith("fails: ")

                server.start()
                await until(lambda: one.sharing.state.server == two.sharing.state.server == "works")
                await asyncio.sleep(2 * TTL_S)
                assert one.held == two.held == PAGES // 2
                assert not one.revoked + two.revoked

    asyncio.run(main())


@pytest.mark.proof
def test_a_server_that_hangs_holds_nobody_up() -> None:
    async def main() -> None:
        with Valkey() as server:
            async with Mini(server.url, TTL_S) as one:
                await until(lambda: one.granted == PAGES)
                with server.frozen():
                    asked = len(one.renewals)
                    await until(lambda: "failed" in one.renewals[asked:])
                    one.offer(10)
                    assert one.held == 10 * EACH  # in the same moment
                await until(lambda: one.renewals[-1] == "answered")
                assert not one.revoked

    asyncio.run(main())


@pytest.mark.proof
def test_an_engine_that_is_silent_for_a_moment_goes_on_with_what_it_has() -> None:
    """Its pool is forgotten and told again; what runs there keeps its part meanwhile, against all who want it."""

    async def main() -> None:
        with Valkey() as server:
            async with Mini(server.url, TTL_S) as one, Mini(server.url, TTL_S) as two:
                await until(lambda: one.granted > 0 and two.granted > 0)
                one.offer(30)
                one.told(None)
                two.offer(PAGES // EACH)
                await until(lambda: two.held == PAGES - 30 * EACH)
                one.told()
                await asyncio.sleep(TTL_S)
                assert one.held == 30 * EACH
                assert not one.revoked + two.revoked

    asyncio.run(main())


@pytest.mark.proof
def test_cut_off_and_told_to_use_nothing_alone_a_gateway_ends_what_it_has() -> None:
    async def main() -> None:
        with Valkey() as server:
            async with Mini(server.url, TTL_S, alone=False) as one:
                await until(lambda: one.granted == PAGES)
                one.offer(10)
                server.kill()
                await until(lambda: one.held == 0)
                assert not one.sharing.ready

    asyncio.run(main())
