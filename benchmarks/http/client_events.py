"""CPU per server-sent event: our client beside aiohttp and httpx, against one server, in one run.

    python benchmarks/http/client_events.py [--rates 48 200] [--seconds 2]

Streams arrive at a fixed rate (open loop), 33 events of 228 bytes each, 10 ms apart, from a server in a process
of its own. Every client splits its bytes with the same EventSplitter, so that only the HTTP layer differs.
Compare rows of one rate only: wake-ups batch, so the cost per event falls as the rate rises. A client is left
out of a rate that would need more than one core of it, and where it cannot be imported.
"""

import argparse
import asyncio
import importlib
import multiprocessing
import time
from collections.abc import Awaitable, Callable, Coroutine
from multiprocessing.connection import Connection as Pipe
from typing import Any

import uvloop

from toolkit.core.http.client import HttpClient, build_request
from toolkit.core.http.errors import TransportError
from toolkit.core.http.sse import EventSplitter

EVENTS = 33
GAP_S = 0.010
EVENT = b'data: {"choices":[{"delta":{"content":"' + b"x" * 183 + b'"}}]}\n\n'
CHUNK = b"%x\r\n%s\r\n" % (len(EVENT), EVENT)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
HEADERS = [("content-type", "application/json")]
BODY = b'{"stream":true}'

Fetch = Callable[[str], Coroutine[Any, Any, int]]  # one stream from its start to its end; the events it had


class Streams(asyncio.Protocol):
    """The server: one stream per request, written on time."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.left = 0

    def data_received(self, data: bytes) -> None:
        if data.endswith(BODY):  # the body is last, and it may come by itself
            self.left = EVENTS
            self.transport.write(HEAD)
            self.next()

    def next(self) -> None:
        self.left -= 1
        self.transport.write(CHUNK if self.left else CHUNK + b"0\r\n\r\n")
        if self.left:
            asyncio.get_running_loop().call_later(GAP_S, self.next)


def serve(pipe: Pipe) -> None:
    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(Streams, "127.0.0.1", 0, backlog=1024)
        pipe.send(server.sockets[0].getsockname()[1])
        await asyncio.get_running_loop().run_in_executor(None, pipe.recv)

    uvloop.run(main())


class CountingSink:
    """Counts events in the read callback."""

    def __init__(self) -> None:
        self.events = 0
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._split = EventSplitter().feed

    def head(self, status: int, headers: list[tuple[str, str]], at: float) -> None:
        pass

    def data(self, chunk: bytes, at: float) -> None:  # noqa: ARG002
        self.events += len(self._split(chunk))

    def ended(self, error: TransportError | None, at: float) -> None:  # noqa: ARG002
        self.over.set_result(None)


async def count(chunks: Any) -> int:
    split, events = EventSplitter().feed, 0
    async for chunk in chunks:
        events += len(split(chunk))
    return events


def ours_sink(url: str) -> tuple[Fetch, Callable[[], Awaitable[None]]]:
    client, request = HttpClient(), build_request("POST", url, HEADERS, BODY)

    async def fetch(_url: str) -> int:
        sink = CountingSink()
        await client.send_to(request, sink)
        await sink.over
        return sink.events

    return fetch, client.close


def ours_response(_url: str) -> tuple[Fetch, Callable[[], Awaitable[None]]]:
    client = HttpClient()

    async def fetch(url: str) -> int:
        response = await client.send("POST", url, HEADERS, BODY)
        split, events = EventSplitter().feed, 0
        async for chunk, _at in response.chunks():
            events += len(split(chunk))
        response.close()
        return events

    return fetch, client.close


def aiohttp_(_url: str) -> tuple[Fetch, Callable[[], Awaitable[None]]]:
    aiohttp = importlib.import_module("aiohttp")
    session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))

    async def fetch(url: str) -> int:
        async with session.post(url, data=BODY, headers=dict(HEADERS)) as response:
            return await count(response.content.iter_any())

    return fetch, session.close


def httpx_(_url: str) -> tuple[Fetch, Callable[[], Awaitable[None]]]:
    httpx = importlib.import_module("httpx")
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    client = httpx.AsyncClient(limits=limits, timeout=30)

    async def fetch(url: str) -> int:
        async with client.stream("POST", url, content=BODY, headers=dict(HEADERS)) as response:
            return await count(response.aiter_raw())

    return fetch, client.aclose


CLIENTS = {"ours, sink": ours_sink, "ours, Response": ours_response, "aiohttp": aiohttp_, "httpx": httpx_}


async def measure(name: str, url: str, rate: int, seconds: float) -> tuple[float, float, float]:
    """us of this process's CPU per event, share of one core, ms by which the last stream ended too late."""
    fetch, close = CLIENTS[name](url)
    await asyncio.gather(*(fetch(url) for _ in range(4)))  # imports, first connections
    loop = asyncio.get_running_loop()
    began, cpu = loop.time(), time.process_time()
    tasks: list[asyncio.Task[int]] = []
    for index in range(int(rate * seconds)):
        delay = began + index / rate - loop.time()
        if delay > 0:
            await asyncio.sleep(delay)
        tasks.append(loop.create_task(fetch(url)))
    events = sum(await asyncio.gather(*tasks))
    cpu, took = time.process_time() - cpu, loop.time() - began
    await close()
    if events != len(tasks) * EVENTS:
        raise SystemExit(f"{name}: {events} events of {len(tasks) * EVENTS}")
    return cpu / events * 1e6, cpu / took, (took - (len(tasks) - 1) / rate - (EVENTS - 1) * GAP_S) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rates", type=int, nargs="+", default=[48, 200], help="streams per second")
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()
    here, there = multiprocessing.get_context("spawn").Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(there,), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{here.recv()}/v1/chat/completions"
    left_out: set[str] = set()
    per_stream: dict[str, float] = {}  # share of one core
    print(f"{'client':16}{'streams/s':>10}{'late ms':>8}{'us/event':>10}{'core':>6}{'of ours':>9}")
    for rate in options.rates:
        first = 0.0
        for name in CLIENTS:
            if name in left_out or per_stream.get(name, 0.0) * rate > 1.0:
                continue
            try:
                cost, core, late_ms = uvloop.run(measure(name, url, rate, options.seconds))
            except ImportError:
                left_out.add(name)
                continue
            first = first or cost
            per_stream[name] = core / rate
            print(f"{name:16}{rate:10}{late_ms:8.0f}{cost:10.1f}{core:6.0%}{cost / first:8.2f}x", flush=True)
    here.send(None)
    server.join(5)


if __name__ == "__main__":
    main()
