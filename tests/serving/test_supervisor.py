"""The supervisor, with small HTTP servers in the place of engines."""

import asyncio
import os
import signal
import socket
import sys
import textwrap
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from serving.config import SupervisorConfig
from serving.engines.process import Command
from serving.engines.restart import State
from serving.supervisor import Member, News, ServiceFailed, Supervisor, processes
from toolkit.core.clock import SystemClock
from toolkit.core.http.client import HttpClient

pytestmark = pytest.mark.slow  # each starts processes

SERVER = """
    import http.server, sys
    class Ready(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path == "/ready" else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()
        def log_message(self, *args): pass
    print("up", flush=True)
    http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Ready).serve_forever()
"""
CONFIG = SupervisorConfig(backoff_s=0.01, max_backoff_s=0.01, crash_loop_exits=3, stop_grace_s=2)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def member(
    run: Path, name: str, script: str = SERVER, *, first_down: bool = False, timeout_s: float = 20
) -> Member:
    port = free_port()
    return Member(
        Command(
            name=name,
            argv=(sys.executable, "-c", textwrap.dedent(script), str(port)),
            env={},
            log=run / "logs" / f"{name}.log",
            log_max_bytes=1_000_000,
            log_keep_files=1,
            grace_s=2,
        ),
        ready_url=f"http://127.0.0.1:{port}/ready",
        ready_timeout_s=timeout_s,
        first_down=first_down,
    )


class Heard:
    """The news, and a way to wait for one."""

    def __init__(self) -> None:
        self.all: list[News] = []
        self._more = asyncio.Event()

    def __call__(self, news: News) -> None:
        self.all.append(news)
        self._more.set()

    async def wait_for(self, name: str, state: State, times: int = 1) -> None:
        async with asyncio.timeout(20):
            while sum(news.name == name and news.state is state for news in self.all) < times:
                self._more.clear()
                await self._more.wait()

    def order(self, what: str) -> list[str]:
        return [news.name for news in self.all if news.what.startswith(what)]


Body = Callable[[Supervisor, Heard], Awaitable[None]]


def supervised(run: Path, body: Body, config: SupervisorConfig = CONFIG) -> Heard:
    """Run `body` with a supervisor that is closed after it, and prove that nothing is left."""

    async def main() -> Heard:
        heard = Heard()
        client = HttpClient()
        supervisor = Supervisor(config, run, SystemClock(), client, heard)
        try:
            await body(supervisor, heard)
        finally:
            await supervisor.close()
            await client.close()
        return heard

    heard = asyncio.run(main())
    assert psutil.Process().children(recursive=True) == []
    return heard


def pid_of(run: Path, name: str) -> int:
    return int(next(row["pid"] for row in processes(run) if row["name"] == name))


def test_everything_starts_and_the_gateway_stops_first(tmp_path: Path) -> None:
    """Open requests can end before the engines go."""

    async def body(supervisor: Supervisor, heard: Heard) -> None:
        await supervisor.start([member(tmp_path, "prefill-0"), member(tmp_path, "decode-0")])
        await supervisor.start([member(tmp_path, "gateway", first_down=True)])

        assert supervisor.waiting_for() == ()
        assert {row["state"] for row in processes(tmp_path)} == {"ready"}

    heard = supervised(tmp_path, body)

    assert heard.order("stopped")[0] == "gateway"
    assert sorted(heard.order("stopped")) == ["decode-0", "gateway", "prefill-0"]
    assert (tmp_path / "logs" / "prefill-0.log").read_text() == "up\n"


def test_a_process_that_dies_is_started_again(tmp_path: Path) -> None:
    """The others are left alone, and it answers under the same address."""

    async def body(supervisor: Supervisor, heard: Heard) -> None:
        await supervisor.start([member(tmp_path, "prefill-0"), member(tmp_path, "decode-0")])
        watching = asyncio.create_task(supervisor.watch())
        os.kill(pid_of(tmp_path, "decode-0"), signal.SIGKILL)
        await heard.wait_for("decode-0", State.READY, times=2)

        assert not watching.done()
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

    heard = supervised(tmp_path, body)

    assert heard.order("exited with status 137; next start in 0.01 s") == ["decode-0"]
    assert heard.order("starting").count("prefill-0") == 1


def test_a_crash_loop_ends_the_service_and_shows_the_log(tmp_path: Path) -> None:
    """Three exits after it was ready; the message holds the last lines."""
    script = textwrap.dedent(SERVER).replace(
        "print(",
        "import threading, os\nthreading.Timer(0.5, lambda: (print('boom'), sys.stdout.flush(), os._exit(3))).start()\nprint(",
    )

    async def body(supervisor: Supervisor, heard: Heard) -> None:
        await supervisor.start([member(tmp_path, "decode-0", script)])
        with pytest.raises(
            ServiceFailed, match=r"(?s)decode-0 keeps exiting \(last status 3\).*boom"
        ) as failed:
            async with asyncio.timeout(20):
                await supervisor.watch()
        assert str(tmp_path / "logs" / "decode-0.log") in str(failed.value)

    heard = supervised(tmp_path, body)

    assert len(heard.order("starting")) == 3


def test_a_start_that_fails_is_told_at_once(tmp_path: Path) -> None:
    """No restart for a process that was never ready; the other is taken down."""

    async def body(supervisor: Supervisor, heard: Heard) -> None:
        bad = member(tmp_path, "decode-0", "import sys; sys.exit('unrecognized arguments: --what')")
        with pytest.raises(ServiceFailed, match=r"(?s)before it was ready.*unrecognized arguments: --what"):
            await supervisor.start([member(tmp_path, "prefill-0"), bad])

    heard = supervised(tmp_path, body)

    assert heard.order("starting").count("decode-0") == 1


def test_a_process_that_never_answers_is_ended(tmp_path: Path) -> None:
    """The ready timeout is told, and it counts as a failed start."""

    async def body(supervisor: Supervisor, heard: Heard) -> None:
        with pytest.raises(ServiceFailed):
            await supervisor.start(
                [member(tmp_path, "decode-0", "import time; time.sleep(600)", timeout_s=0.05)]
            )

    heard = supervised(tmp_path, body)

    assert heard.order("not ready within 0.05 s") == ["decode-0"]


def test_a_start_can_be_interrupted(tmp_path: Path) -> None:
    """Ctrl-C while engines load leaves nothing behind."""

    async def body(supervisor: Supervisor, heard: Heard) -> None:
        starting = asyncio.create_task(
            supervisor.start([member(tmp_path, "prefill-0", "import time; time.sleep(600)")])
        )
        await heard.wait_for("prefill-0", State.STARTING)
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)

    heard = supervised(tmp_path, body)

    assert heard.order("stopped") == ["prefill-0"]


def test_a_log_that_cannot_be_written_is_told_and_survived(tmp_path: Path) -> None:
    """A full disk takes no engine down."""

    async def body(supervisor: Supervisor, heard: Heard) -> None:
        (tmp_path / "logs").mkdir()
        (tmp_path / "logs" / "decode-0.log").symlink_to("/dev/full")
        await supervisor.start([member(tmp_path, "decode-0")])

    heard = supervised(tmp_path, body)

    assert heard.order("its log cannot be written") == ["decode-0"]


def test_a_run_folder_that_vanished_stops_nothing(tmp_path: Path) -> None:
    """processes.json is a convenience."""
    run = tmp_path / "gone"

    async def body(supervisor: Supervisor, heard: Heard) -> None:
        await supervisor.start([member(tmp_path, "decode-0")])

    supervised(run, body)

    assert processes(run) == ()


PATIENT = """
    import signal, sys
    def end(*_):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        print("draining", flush=True)
    signal.signal(signal.SIGTERM, end)
""" + SERVER.replace("import http.server, sys", "import http.server")


def test_a_gateway_that_drains_for_long_is_waited_for_until_it_is_told_again(tmp_path: Path) -> None:
    """What it was configured to take goes beyond the usual seconds; a second signal of the operator ends the wait."""
    patient = member(tmp_path, "gateway", PATIENT, first_down=True)
    patient = replace(patient, command=replace(patient.command, grace_s=600.0), longer_s=597.0)

    async def body(supervisor: Supervisor, heard: Heard) -> None:
        await supervisor.start([patient])
        closing = asyncio.create_task(supervisor.close())
        await heard.wait_for("gateway", State.STOPPING)
        log = tmp_path / "logs" / "gateway.log"
        async with asyncio.timeout(20):
            while "draining" not in log.read_text():
                await asyncio.sleep(0.02)
        supervisor.hurry()
        async with asyncio.timeout(20):
            await closing

    heard = supervised(tmp_path, body)

    assert heard.order("stopped") == ["gateway"]
    assert [news.what for news in heard.all][-1] == "stopped"
