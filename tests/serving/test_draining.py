"""A gateway that is told to end loses nothing that it took, tells everybody else where it stands, and ends in time."""

import asyncio
import contextlib

import pytest

from serving.config import ServeConfig
from serving.draining import Draining
from serving.launcher import gateway_member
from serving.server import listen, server_of
from serving.supervisor import STOP_TOTAL_S
from tests.serving.fake_exchange import FakeExchange
from tests.serving.rig import chat, rig, until
from tests.serving.stand_ins import FROZEN, wire

HANGS = wire("silence", 2)


@contextlib.asynccontextmanager
async def ending(tmp_path, settings=None, **faults):
    """A served gateway, its port, and what ends it."""
    async with rig(tmp_path, {"gateway": settings or {}}, **faults) as made:
        listener = listen("127.0.0.1", 0)
        front = server_of(made.gateway.api.handle)
        task = asyncio.create_task(front.serve(sockets=[listener]))
        await until(lambda: front.started)
        config = made.gateway.service.config.gateway
        draining = Draining(made.gateway.lifecycle, made.gateway.status, config, front.last_of_connections)
        try:
            yield made, listener.getsockname()[1], draining
        finally:
            front.should_exit = True
            await task
            listener.close()


class Connection:
    """One keep-alive connection."""

    def __init__(self, port):
        self._port = port

    async def ask(self, path="/v1/chat/completions"):
        if not hasattr(self, "_writer"):
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        body = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}' if "chat" in path else b""
        method = b"POST" if body else b"GET"
        head = b"%s %s HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n"
        self._writer.write(head % (method, path.encode(), len(body)) + body)
        answer = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
        size = next(int(line.split(":")[1]) for line in answer.splitlines() if "content-length" in line)
        return answer, (await self._reader.readexactly(size)).decode()

    async def ended(self):
        return await self._reader.read() == b""

    def close(self):
        self._writer.close()


def test_for_a_while_it_only_says_that_it_goes(tmp_path):
    """A load balancer that asks /readyz has drain_lead_s to send requests elsewhere; until then none is refused."""

    async def scenario():
        async with ending(tmp_path, {"drain_lead_s": 60, "drain_timeout_s": 5}) as (made, port, draining):
            task = asyncio.create_task(draining.run())
            await until(lambda: made.gateway.status.stopping)
            ready, _ = await (probe := Connection(port)).ask("/readyz")
            answer, _ = await probe.ask()
            draining.hurry()
            await task
            refused, told = await probe.ask()
            probe.close()
            return ready, answer, refused, told

    ready, answer, refused, told = asyncio.run(scenario())

    assert ready.startswith("http/1.1 503")
    assert answer.startswith("http/1.1 200")
    assert refused.startswith("http/1.1 503") and "shutting_down" in told
    assert "retry-after: 1" in refused and "connection: close" in refused


def test_open_requests_end_and_their_connections_with_them(tmp_path):
    """An answer under way is whole; the connection says that it was its last. An idle one is told when it asks."""

    async def scenario():
        async with ending(tmp_path, {"drain_timeout_s": 30}, decode_0=FROZEN) as (made, port, draining):
            idle, busy = Connection(port), Connection(port)
            await idle.ask("/healthz")
            answer = asyncio.create_task(busy.ask())
            await until(lambda: made.gateway.lifecycle.open_requests == 1 and made.legs["decode-0"].calls)
            task = asyncio.create_task(draining.run())
            await until(lambda: made.gateway.lifecycle.stopping)
            refused, _ = await idle.ask()
            made.legs["decode-0"].set()
            head, body = await answer
            await task
            closed = await busy.ended(), await idle.ended()
            idle.close()
            busy.close()
            return refused, head, body, closed

    refused, head, body, closed = asyncio.run(scenario())

    assert refused.startswith("http/1.1 503") and "connection: close" in refused
    assert head.startswith("http/1.1 200") and "connection: close" in head
    assert '"finish_reason":"stop"' in body.replace(" ", "")
    assert closed == (True, True)


@pytest.mark.parametrize(("patience_s", "hurried"), [(0.05, False), (60.0, True)])
def test_what_does_not_end_is_cut_in_time_or_at_a_second_signal(tmp_path, patience_s, hurried):
    """The stream's last event says why; no client waits for nothing."""

    async def scenario():
        settings = {"drain_timeout_s": patience_s}
        async with ending(tmp_path, settings, decode_0=HANGS) as (made, _, draining):
            streaming = FakeExchange(chat())
            asking = asyncio.create_task(made.gateway.api.handle(streaming))
            await streaming.first_piece.wait()
            task = asyncio.create_task(draining.run())
            await until(lambda: made.gateway.lifecycle.stopping)
            if hurried:
                draining.hurry()
            await asyncio.gather(task, asking)
            return streaming

    streaming = asyncio.run(scenario())

    assert "shutting_down" in streaming.text and streaming.ended


def test_the_launcher_waits_as_long_as_the_gateway_drains(tmp_path):
    """A long drain is what somebody asked for; with none all is down within the usual time."""

    def member(**gateway):
        return gateway_member(ServeConfig.model_validate({"gateway": gateway}), tmp_path, "http://x")

    assert member().longer_s == 0.0
    assert member().command.grace_s < STOP_TOTAL_S
    long = member(drain_lead_s=10, drain_timeout_s=600)
    assert long.command.grace_s > 610
    assert long.longer_s == pytest.approx(607)
