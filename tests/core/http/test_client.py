"""The client against real sockets, on both event loops."""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Any

import pytest

from toolkit.core.http.client import Flight, HttpClient, build_request
from toolkit.core.http.errors import (
    BodyTooLarge,
    ConnectFailed,
    ConnectionLost,
    ProtocolViolation,
    TransportError,
    Truncated,
)

Run = Callable[[Any], None]
Serve = Callable[..., Any]

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


def answering(*answers: bytes, then: str = "close") -> Callable[[Any], Any]:
    """A handler that gives these answers to successive requests of a connection, then closes it or holds it."""

    async def handler(wire: Any) -> None:
        for answer in answers:
            await wire.request()
            wire.write(answer)
        if then == "hold":
            await wire.gone()

    return handler


async def always_ok(wire: Any) -> None:
    while True:
        await wire.request()
        wire.write(OK)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


@contextlib.asynccontextmanager
async def client_of(**options: Any) -> Any:
    """A client that must end without a connection in use."""
    client = HttpClient(**options)
    try:
        yield client
        assert client.open_connections == 0
    finally:
        await client.close()
        assert client.open_connections == 0
        assert client.idle_connections == 0


def test_a_connection_is_used_again(run: Run, serve: Serve) -> None:
    """Requests one after another share a connection, whatever framing their answers have."""
    answers = [
        OK,
        STREAM_HEAD + b"2\r\nok\r\n0\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + OK,
    ]

    async def main() -> None:
        async with serve(answering(*answers)) as peer, client_of() as client:
            bodies = [await (await client.send("GET", peer.url)).read() for _ in answers]

            assert bodies == [b"ok", b"ok", b"", b"ok"]
            assert len(peer.wires) == 1

    run(main())


def test_a_head_answer_has_no_body(run: Run, serve: Serve) -> None:
    """The content-length of a HEAD answer is not waited for."""

    async def main() -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n"
        async with serve(answering(head, OK)) as peer, client_of() as client:
            response = await client.send("HEAD", peer.url)

            assert (await response.read(), response.header("Content-Length")) == (b"", "1000")
            assert await (await client.send("GET", peer.url)).read() == b"ok"
            assert len(peer.wires) == 1

    run(main())


def test_the_request_arrives_as_written(run: Run, serve: Serve) -> None:
    """Body pieces, small and large, arrive joined and counted."""
    seen: list[bytes] = []

    async def handler(wire: Any) -> None:
        while True:
            seen.append(await wire.request())
            wire.write(OK)

    async def main() -> None:
        async with serve(handler) as peer, client_of() as client:
            big = bytes(range(256)) * 20_000
            await (await client.send("POST", f"{peer.url}/a?b", [("X-K", "v")], [b"{", big, b"}"])).read()

            head, _, body = seen[0].partition(b"\r\n\r\n")
            assert body == b"{" + big + b"}"
            assert head.splitlines()[0] == b"POST /a?b HTTP/1.1"
            assert b"X-K: v" in head.splitlines()
            assert client.idle_connections == 1

    run(main())


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
        OK + b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\npoison!",
    ],
    ids=["connection: close", "HTTP/1.0", "bytes after the answer"],
)
def test_a_connection_that_must_not_be_used_again(run: Run, serve: Serve, answer: bytes) -> None:
    """The next request gets a fresh connection, and never another's bytes."""

    async def main() -> None:
        async with serve(answering(answer, then="hold")) as peer, client_of() as client:
            for _ in range(2):
                assert await (await client.send("GET", peer.url)).read() == b"ok"
                assert client.idle_connections == 0
            assert len(peer.wires) == 2

    run(main())


def test_bytes_on_an_idle_connection_end_it(run: Run, serve: Serve) -> None:
    """What a peer says unasked is never taken for an answer."""

    async def main() -> None:
        async with serve(always_ok) as peer, client_of() as client:
            await (await client.send("GET", peer.url)).read()
            peer.wires[0].write(b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n")
            await until(lambda: client.idle_connections == 0)

            assert (await client.send("POST", peer.url)).status == 200
            assert len(peer.wires) == 2

    run(main())


def test_a_body_until_close(run: Run, serve: Serve) -> None:
    """Without framing, the peer's close is the end and no error."""

    async def main() -> None:
        async with serve(answering(b"HTTP/1.1 200 OK\r\n\r\nall of it")) as peer, client_of() as client:
            assert await (await client.send("GET", peer.url)).read() == b"all of it"
            assert client.idle_connections == 0

    run(main())


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\npart",
        STREAM_HEAD + b"a\r\npart",
        STREAM_HEAD + b"4\r\npart\r\n",
        STREAM_HEAD + b"4\r\npart\r\n0\r\n",
    ],
    ids=["content-length", "inside a chunk", "between chunks", "before the last line"],
)
def test_a_truncated_body_is_told(run: Run, serve: Serve, answer: bytes) -> None:
    """What arrived is given, then Truncated, every time it is asked."""

    async def main() -> None:
        async with serve(answering(answer)) as peer, client_of() as client:
            response = await client.send("GET", peer.url)
            pieces: list[bytes] = []

            async def collect() -> None:
                async for piece, _ in response.chunks():
                    pieces.append(piece)

            with pytest.raises(Truncated) as caught:
                await collect()
            with pytest.raises(Truncated):
                await response.read()

            assert b"".join(pieces) == b"part"
            assert caught.value.phase == "body"

    run(main())


def test_a_reset_inside_the_body_is_truncation(run: Run, serve: Serve) -> None:
    """RST is told like FIN, also where the body would end with the connection."""

    async def main() -> None:
        event = asyncio.Event()

        async def handler(wire: Any) -> None:
            await wire.request()
            wire.write(b"HTTP/1.1 200 OK\r\n\r\npart")
            await event.wait()
            wire.reset()

        async with serve(handler) as peer, client_of() as client:
            response = await client.send("GET", peer.url)
            event.set()
            with pytest.raises(Truncated):
                await response.read()

    run(main())


@pytest.mark.parametrize("partial", [b"", b"HTTP/1.1 200 OK\r\ncont"], ids=["no byte", "a part of the head"])
@pytest.mark.parametrize("how", ["fin", "rst"])
def test_closed_before_the_head(run: Run, serve: Serve, partial: bytes, how: str) -> None:
    """On a fresh connection this is ConnectionLost, and nothing is sent again."""

    async def handler(wire: Any) -> None:
        await wire.request()
        wire.write(partial)
        if how == "rst":
            wire.reset()

    async def main() -> None:
        async with serve(handler) as peer, client_of() as client:
            with pytest.raises(ConnectionLost) as caught:
                await client.send("GET", peer.url)

            assert caught.value.phase == "head"
            assert len(peer.wires) == 1

    run(main())


def test_reset_during_the_upload(run: Run, serve: Serve) -> None:
    """The error says that the request was not wholly written."""

    async def handler(wire: Any) -> None:
        await wire.reader.readuntil(b"\r\n\r\n")
        wire.reset()

    async def main() -> None:
        async with serve(handler) as peer, client_of() as client:
            with pytest.raises(ConnectionLost) as caught:
                await client.send("POST", peer.url, body=[b"x" * 16_000_000] * 2)
            assert caught.value.phase == "write"

    run(main())


@pytest.mark.parametrize(
    "answer", [b"SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000], ids=["ssh", "endless head"]
)
def test_what_is_not_http_is_refused(run: Run, serve: Serve, answer: bytes) -> None:
    """ProtocolViolation, and the connection is gone."""

    async def main() -> None:
        async with serve(answering(answer, then="hold")) as peer, client_of() as client:
            with pytest.raises(ProtocolViolation) as caught:
                await client.send("GET", peer.url)
            assert caught.value.phase == "head"
            assert client.open_connections == 0

    run(main())


def test_a_violation_inside_the_body(run: Run, serve: Serve) -> None:
    """Told after the pieces before it."""

    async def main() -> None:
        async def handler(wire: Any) -> None:
            await wire.request()
            wire.write(STREAM_HEAD + b"2\r\nok\r\n")
            await told.wait()
            wire.write(b"zzz\r\n")
            await wire.gone()

        told = asyncio.Event()
        async with serve(handler) as peer, client_of() as client:
            response = await client.send("GET", peer.url)
            chunks = response.chunks()
            first = await anext(chunks)
            told.set()
            with pytest.raises(ProtocolViolation) as caught:
                await anext(chunks)

            assert first[0] == b"ok"
            assert caught.value.phase == "body"

    run(main())


def test_refused(run: Run) -> None:
    """No listener: ConnectFailed, at once."""

    async def main() -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            async with client_of() as client:
                with pytest.raises(ConnectFailed) as caught:
                    await client.send("GET", f"http://127.0.0.1:{unused.getsockname()[1]}/")
                assert caught.value.phase == "connect"

    run(main())


@pytest.mark.parametrize("host", ["a" * 70 + ".example", "[::ffff:300.1.1.1]"])
def test_a_host_that_cannot_be_resolved(run: Run, host: str) -> None:
    """A name that no resolver takes is refused before any packet."""

    async def main() -> None:
        async with client_of() as client:
            with pytest.raises((ConnectFailed, ValueError)):
                await client.send("GET", f"http://{host}/")

    run(main())


def test_ipv6(run: Run, serve: Serve) -> None:
    """A bracketed literal is connected to without its brackets and named with them."""
    seen: list[bytes] = []

    async def handler(wire: Any) -> None:
        seen.append(await wire.request())
        wire.write(OK)

    async def main() -> None:
        async with serve(handler, host="::1") as peer, client_of() as client:
            assert await (await client.send("GET", peer.url)).read() == b"ok"
            assert f"host: {peer.url.removeprefix('http://')}\r\n".encode() in seen[0]

    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    run(main())


# --- kept-alive connections that the peer closed


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_close_that_nobody_noticed_yet(run: Run, serve: Serve, method: str) -> None:
    """The peer's FIN is in the socket but not in the event loop: even a POST goes elsewhere, once."""
    seen: list[bytes] = []

    async def handler(wire: Any) -> None:
        while True:
            seen.append(await wire.request())
            wire.write(OK)

    async def main() -> None:
        async with serve(handler) as peer, client_of() as client:
            await (await client.send("GET", peer.url)).read()
            peer.wires[0].finish_now()  # no await between this and the next send

            assert await (await client.send(method, peer.url, body=b"x")).read() == b"ok"
            assert len(peer.wires) == 2
            assert len(seen) == 2

    run(main())


@pytest.mark.parametrize(("method", "sent"), [("GET", 3), ("PUT", 3), ("POST", 2)])
def test_a_close_that_crosses_the_request(run: Run, serve: Serve, method: str, sent: int) -> None:
    """The peer closes on receipt of a second request: sent once more if idempotent, told if not."""
    seen: list[bytes] = []

    async def one_answer(wire: Any) -> None:
        seen.append(await wire.request())
        wire.write(OK)
        seen.append(await wire.request())

    async def main() -> None:
        async with serve(one_answer) as peer, client_of() as client:
            await (await client.send("GET", peer.url)).read()
            if method == "POST":
                with pytest.raises(ConnectionLost):
                    await client.send(method, peer.url)
            else:
                assert await (await client.send(method, peer.url)).read() == b"ok"

            assert len(seen) == sent

    run(main())


def test_a_byte_of_an_answer_ends_all_repeating(run: Run, serve: Serve) -> None:
    """A reused connection that dies inside the head is told, for a GET too."""

    async def main() -> None:
        async with serve(answering(OK, b"HTTP/1.1 2")) as peer, client_of() as client:
            await (await client.send("GET", peer.url)).read()
            with pytest.raises(ConnectionLost):
                await client.send("GET", peer.url)
            assert len(peer.wires) == 1

    run(main())


def test_an_idle_connection_ages(run: Run, serve: Serve) -> None:
    """Older than the limit, it is not used again."""
    now = [0.0]

    async def main() -> None:
        async with serve(always_ok) as peer, client_of(clock=lambda: now[0], idle_timeout_s=4.0) as client:
            for at, connections in [(0.0, 1), (3.9, 1), (7.8, 1), (11.8, 2)]:
                now[0] = at
                await (await client.send("GET", peer.url)).read()
                assert len(peer.wires) == connections

    run(main())


def test_idle_connections_are_closed_without_being_asked_for(run: Run, serve: Serve) -> None:
    """They do not stay open just because no request comes."""

    async def main() -> None:
        async with serve(always_ok) as peer, client_of(idle_timeout_s=0.01) as client:
            await (await client.send("GET", peer.url)).read()
            await until(lambda: client.idle_connections == 0)
            await until(lambda: not peer.tasks)  # the peer saw it

    run(main())


def test_idle_connections_are_bounded(run: Run, serve: Serve) -> None:
    """Above `max_idle_per_host` a connection is closed on its return."""

    async def main() -> None:
        async with serve(always_ok) as peer, client_of(max_idle_per_host=2) as client:
            responses = await asyncio.gather(*(client.send("GET", peer.url) for _ in range(5)))
            await asyncio.gather(*(response.read() for response in responses))
            await until(lambda: client.open_connections == 0)

            assert len(peer.wires) == 5
            assert client.idle_connections == 2

    run(main())


# --- giving up


async def silent(wire: Any) -> None:
    await wire.request()
    await wire.gone()


async def half(wire: Any) -> None:
    await wire.request()
    wire.write(STREAM_HEAD + b"2\r\nok\r\n")
    await wire.gone()


def test_cancelling_send_closes_the_connection(run: Run, serve: Serve) -> None:
    """While the head is awaited: the peer learns at once, nothing is left."""

    async def main() -> None:
        async with serve(silent) as peer, client_of() as client:
            task = asyncio.create_task(client.send("POST", peer.url))
            await until(lambda: client.open_connections == 1 and len(peer.wires) == 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

            assert client.open_connections == 0
            await until(lambda: not peer.tasks)

    run(main())


def test_cancelling_while_connecting(run: Run, serve: Serve) -> None:
    """At whatever step of connecting the cancel falls, nothing is left."""

    async def main() -> None:
        async with serve(silent) as peer, client_of() as client:
            for steps in range(12):
                task = asyncio.create_task(client.send("GET", peer.url))
                for _ in range(steps):
                    await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert client.open_connections == 0
            await until(lambda: not peer.tasks)

    run(main())


@pytest.mark.parametrize("how", ["read", "chunks"])
def test_cancelling_inside_the_body(run: Run, serve: Serve, how: str) -> None:
    """A reader that is cancelled and closes leaves nothing; `read` closes by itself."""

    async def main() -> None:
        async with serve(half) as peer, client_of() as client:
            response = await client.send("GET", peer.url)
            first, _ = await anext(response.chunks())

            async def reader() -> None:
                if how == "read":
                    await response.read()
                with contextlib.closing(response):
                    await anext(response.chunks())

            task = asyncio.create_task(reader())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

            assert first == b"ok"
            assert client.open_connections == 0
            await until(lambda: not peer.tasks)

    run(main())


def test_closing_an_unfinished_answer(run: Run, serve: Serve) -> None:
    """The peer's socket is closed at once; a second close does nothing."""

    async def main() -> None:
        async with serve(half) as peer, client_of() as client:
            response = await client.send("GET", peer.url)
            response.close()
            response.close()

            assert (client.open_connections, client.idle_connections) == (0, 0)
            await until(lambda: not peer.tasks)

    run(main())


def test_closing_a_finished_answer_spares_the_connection(run: Run, serve: Serve) -> None:
    """Also when another request already uses it."""

    async def main() -> None:
        async with serve(answering(OK, STREAM_HEAD + b"2\r\nok\r\n0\r\n\r\n")) as peer, client_of() as client:
            first = await client.send("GET", peer.url)
            await first.read()
            second = await client.send("GET", peer.url)
            first.close()

            assert await second.read() == b"ok"
            assert len(peer.wires) == 1

    run(main())


def test_closing_the_client(run: Run, serve: Serve) -> None:
    """Readers are told, idle connections are dropped, later requests are refused."""

    async def main() -> None:
        client = HttpClient()
        async with serve(half) as peer, serve(always_ok) as other, serve(silent) as mute:
            await (await client.send("GET", other.url)).read()
            response = await client.send("GET", peer.url)
            waiting = asyncio.create_task(client.send("GET", mute.url))
            await until(lambda: bool(mute.wires))
            await client.close()

            assert (client.open_connections, client.idle_connections) == (0, 0)
            with pytest.raises(Truncated):
                await response.read()
            with pytest.raises(ConnectionLost):
                await waiting
            with pytest.raises(ConnectFailed):
                await client.send("GET", peer.url)
            await until(lambda: not peer.tasks and not other.tasks)
            await client.close()

    run(main())


# --- bodies


def test_a_reader_that_stops_stops_the_peer(run: Run, serve: Serve) -> None:
    """Unread bytes stay in the kernel and at the peer, and none is lost when reading goes on."""
    size = 64 * 1024 * 1024
    block = b"x" * 65_536
    sent = [0]

    async def handler(wire: Any) -> None:
        await wire.request()
        wire.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
        while sent[0] < size:
            wire.write(block)
            await wire.writer.drain()
            sent[0] += len(block)
        await wire.gone()

    async def main() -> None:
        async with serve(handler) as peer, client_of() as client:
            response = await client.send("GET", peer.url)
            before = -1
            while before != sent[0]:  # until the peer no longer advances
                before = sent[0]
                await asyncio.sleep(0.05)

            assert before < size // 2
            assert response._buffered_bytes < 262_144 * 2 + 65_536
            got = 0
            async for piece, _ in response.chunks():
                got += len(piece)
            assert got == size

    run(main())


@pytest.mark.parametrize(
    "head", [b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n", STREAM_HEAD + b"3e8\r\n"]
)
def test_a_body_above_the_callers_limit(run: Run, serve: Serve, head: bytes) -> None:
    """Refused without reading the rest; the connection is closed."""

    async def main() -> None:
        async with serve(answering(head + b"x" * 500, then="hold")) as peer, client_of() as client:
            response = await client.send("GET", peer.url)
            with pytest.raises(BodyTooLarge):
                await response.read(limit=499)
            assert client.open_connections == 0

    run(main())


def test_an_answer_before_the_upload_ends(run: Run, serve: Serve) -> None:
    """A refusal is heard while the body is still being written; that connection is not used again."""

    async def handler(wire: Any) -> None:
        await wire.reader.readuntil(b"\r\n\r\n")
        wire.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nbig")
        await asyncio.Event().wait()

    async def main() -> None:
        async with serve(handler) as peer, client_of() as client:
            response = await client.send("POST", peer.url, body=[b"x" * 16_000_000] * 2)

            assert response.status == 413
            assert await response.read() == b"big"
            assert client.idle_connections == 0

    run(main())


def test_times_are_those_of_arrival(run: Run, serve: Serve) -> None:
    """A piece carries the clock of its arrival, however late it is read."""
    now = [1.0]

    async def main() -> None:
        step = asyncio.Event()

        async def handler(wire: Any) -> None:
            await wire.request()
            now[0] = 2.0
            wire.write(STREAM_HEAD)
            await step.wait()
            wire.write(b"1\r\na\r\n")
            await wire.gone()

        async with serve(handler) as peer, client_of(clock=lambda: now[0]) as client:
            response = await client.send("GET", peer.url)
            now[0] = 3.0
            step.set()
            await until(lambda: response._buffered_bytes == 1)
            now[0] = 9.0

            assert (response.sent_at, response.head_at) == (1.0, 2.0)
            assert await anext(response.chunks()) == (b"a", 3.0)
            response.close()

    run(main())


# --- sinks


class Recorder:
    """A sink that remembers, and may act on what it hears."""

    def __init__(self, act: Callable[[str], None] = lambda name: None) -> None:
        self.heard: list[tuple[Any, ...]] = []
        self.over = asyncio.Event()
        self._act = act

    def head(self, status: int, headers: list[tuple[str, str]], at: float) -> None:
        self.heard.append(("head", status))
        self._act("head")

    def data(self, chunk: bytes, at: float) -> None:
        self.heard.append(("data", chunk))
        self._act("data")

    def ended(self, error: TransportError | None, at: float) -> None:
        self.heard.append(("ended", type(error)))
        self.over.set()
        self._act("ended")


def test_a_sink_hears_all_in_order(run: Run, serve: Serve) -> None:
    """Head, data, end; one call per read however many chunks it holds."""

    async def main() -> None:
        answer = STREAM_HEAD + b"1\r\na\r\n2\r\nbc\r\n0\r\n\r\n"
        async with serve(answering(answer, STREAM_HEAD + b"1\r\na\r\n")) as peer, client_of() as client:
            request = build_request("GET", peer.url)
            for end in (type(None), Truncated):
                sink = Recorder()
                await client.send_to(request, sink)
                await sink.over.wait()
                assert sink.heard[0] == ("head", 200)
                assert b"".join(item[1] for item in sink.heard if item[0] == "data") in (b"abc", b"a")
                assert sink.heard[-1] == ("ended", end)
            assert len(peer.wires) == 1

    run(main())


def test_a_request_may_leave_within_the_turn(run: Run, serve: Serve) -> None:
    """`send_now` writes on an idle connection, and says so when there is none."""

    async def main() -> None:
        async with serve(always_ok) as peer, client_of() as client:
            request = build_request("GET", peer.url)
            assert client.send_now(request, Recorder()) is None

            first = Recorder()
            await client.send_to(request, first)
            await first.over.wait()
            second = Recorder()
            flight = client.send_now(request, second)

            assert flight is not None
            assert flight.reused
            await second.over.wait()
            assert second.heard == first.heard
            assert len(peer.wires) == 1

        assert client.send_now(request, Recorder()) is None  # closed

    run(main())


@pytest.mark.parametrize("at", ["head", "data"])
def test_an_aborting_sink_hears_nothing_more(run: Run, serve: Serve, at: str) -> None:
    """Abort from inside a call holds from that call on."""

    async def main() -> None:
        flights: list[Flight] = []
        sink = Recorder(lambda name: flights[0].abort() if name == at else None)
        async with serve(answering(OK, then="hold")) as peer, client_of() as client:
            flights.append(await client.send_to(build_request("GET", peer.url), sink))
            await until(lambda: not peer.tasks and bool(peer.wires))

            assert sink.heard[-1][0] == at
            assert flights[0].over

    run(main())


def test_the_connection_is_free_when_the_end_is_told(run: Run, serve: Serve) -> None:
    """A sink may start the next exchange on it from `ended`."""

    async def main() -> None:
        idle: list[int] = []
        async with serve(always_ok) as peer, client_of() as client:
            sink = Recorder(lambda name: idle.append(client.idle_connections) if name == "ended" else None)
            await client.send_to(build_request("GET", peer.url), sink)
            await sink.over.wait()

            assert idle == [1]

    run(main())


def test_nagle_is_off(run: Run, serve: Serve) -> None:
    """A small request behind a large one does not wait for an acknowledgement."""

    async def main() -> None:
        async with serve(always_ok) as peer, client_of() as client:
            await (await client.send("GET", peer.url)).read()
            (connection,) = client._pool._idle[build_request("GET", peer.url).origin]
            transport = connection._transport
            assert transport is not None
            own = transport.get_extra_info("socket")

            assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0

    run(main())
