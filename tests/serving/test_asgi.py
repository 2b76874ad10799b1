"""The gateway behind a real uvicorn: the openai SDK unchanged, keep-alive, hang-ups, slow uploads."""

import asyncio
import contextlib
import socket

import openai
import orjson
import pytest
import uvicorn

from serving.asgi import asgi_app
from serving.protocol import BoundedProtocol
from serving.server import Server
from tests.serving.rig import records, rig, until
from tests.serving.stand_ins import FROZEN, wire


@contextlib.asynccontextmanager
async def served(tmp_path, settings=None, protocol=BoundedProtocol, **faults):
    async with rig(tmp_path, settings, **faults) as made:
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(
            asgi_app(made.gateway.api.handle),
            http=protocol,
            loop="none",
            lifespan="off",
            ws="none",
            log_config=None,
            timeout_graceful_shutdown=1,
        )
        server = Server(config)
        task = asyncio.create_task(server.serve(sockets=[listener]))
        await until(lambda: server.started)
        try:
            yield made, listener.getsockname()[1]
        finally:
            server.should_exit = True
            await task
            listener.close()


def sdk(port):
    return openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none-needed", max_retries=0)


class Hasty(BoundedProtocol):
    """Waits no time for a body that nobody reads."""

    DROP_SILENCE_S = 0.2


MESSAGES = [{"role": "user", "content": "hi"}]


def test_the_openai_sdk_works_unchanged(tmp_path):
    """Stream, whole answer, model list, and a typed error with its code."""

    async def scenario():
        async with served(tmp_path) as (made, port), sdk(port) as client:
            models = [model.id async for model in await client.models.list()]
            whole = await client.chat.completions.create(model="m", messages=MESSAGES)
            stream = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
            text = "".join([piece.choices[0].delta.content or "" async for piece in stream])
            with pytest.raises(openai.NotFoundError) as missing:
                await client.chat.completions.create(model="other", messages=MESSAGES)
            said = {seen.said for seen in made.legs["decode-0"].calls}
            return models, {whole.choices[0].message.content, text}, said, missing.value.code

    models, heard, said, missing = asyncio.run(scenario())

    assert (models, missing) == (["m"], "not_found")
    assert heard == said and len(said) == 1 and said != {""}


def test_the_sdk_sees_a_failure_in_mid_stream_as_an_error(tmp_path):
    """The error event raises; the half answer is never taken for a whole one."""

    async def scenario():
        async with served(tmp_path, decode_0=wire("reset", 2)) as (_, port), sdk(port) as client:
            stream = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
            async for _ in stream:
                pass

    with pytest.raises(openai.APIError, match="decode-0"):
        asyncio.run(scenario())


def test_a_closed_socket_cancels_both_legs_before_the_first_token(tmp_path):
    """Five of nine gateways notice only when the first token is to be written."""

    async def scenario():
        async with served(tmp_path, prefill_0=FROZEN, decode_0=FROZEN) as (made, port):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            body = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}'
            writer.write(
                b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
                + body
            )
            await until(lambda: made.legs["decode-0"].calls and made.legs["prefill-0"].calls)
            writer.close()
            await until(
                lambda: all(leg.calls[0].closed.is_set() and leg.aborted for leg in made.legs.values())
            )

    asyncio.run(scenario())
    assert [record["outcome"] for record in records(tmp_path)] == ["client_closed"]


def test_a_client_that_closes_in_mid_upload_leaves_nothing(tmp_path):
    """Half a body is no request."""

    async def scenario():
        async with served(tmp_path) as (made, port):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\nhalf")
            await until(lambda: made.gateway.admission.seated == 1)
            writer.close()
            await until(lambda: made.gateway.admission.idle)

    asyncio.run(scenario())
    assert [record["outcome"] for record in records(tmp_path)] == ["client_closed"]


def test_a_slow_upload_is_ended_with_a_typed_408(tmp_path):
    """A seat is not held for ever."""

    async def scenario():
        settings = {"gateway": {"body_timeout_s": 0.05}}
        async with served(tmp_path, settings, Hasty) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\nhalf")
            answer = await reader.read()
            writer.close()
            return answer

    answer = asyncio.run(scenario())

    assert answer.startswith(b"HTTP/1.1 408")
    assert b"body_timeout" in answer


@pytest.mark.parametrize("keeps", [b"keep-alive", b"close"])
def test_an_early_answer_reaches_a_client_that_goes_on_sending(tmp_path, keeps):
    """Closed at once, the connection would be reset over the bytes still unread, and the answer lost."""

    async def scenario():
        async with served(tmp_path, {"gateway": {"max_body_bytes": 1000}}) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            size = 20_000_000
            head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: %b\r\ncontent-length: %d\r\n\r\n"
            writer.write(head % (keeps, size) + bytes(size))
            await writer.drain()
            answer = await reader.read()
            writer.close()
            return answer

    answer = asyncio.run(scenario())

    assert answer.startswith(b"HTTP/1.1 413")
    assert b"body_too_large" in answer


def test_a_body_that_finds_no_room_waits_on_the_socket(tmp_path):
    """Two fit; of the third nothing is read but its first pieces, until one of the two is gone. Text goes by."""
    settings = {
        "gateway": {"max_body_bytes": 4_000_000},
        "access": {"memory_mb": 36, "cache_mb": 4, "max_image_bytes": 2_000_000},
    }
    size = 2_000_000
    head = (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-ttft-budget-ms: %d\r\ncontent-length: %d\r\n\r\n"
    )

    async def scenario():
        async with served(tmp_path, settings) as (made, port), sdk(port) as client:
            share = made.gateway.bodies.share

            async def upload(budget_ms, sent=size):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(head % (budget_ms, size) + b" " * sent)
                return reader, writer

            first = [await upload(60_000, size // 2) for _ in range(2)]
            await until(lambda: share.held_bytes == 4 * size)
            refused, gone = await upload(300)
            refusal = await refused.readuntil(b"}}")
            waits, waiter = await upload(60_000)
            await until(lambda: share.waiting == 1)
            text = await client.chat.completions.create(model="m", messages=MESSAGES)
            still = share.waiting
            first[0][1].close()
            invalid = await waits.readuntil(b"}}")
            for writer in (first[1][1], gone, waiter):
                writer.close()
            await until(lambda: made.gateway.admission.idle)
            share.check()
            return refusal, text, still, invalid, share.held_bytes

    refusal, text, still, invalid, left = asyncio.run(scenario())

    assert refusal.startswith(b"HTTP/1.1 429")
    assert b"retry-after: 1" in refusal.lower()
    assert (text.choices[0].finish_reason, still) == ("stop", 1)
    assert b"invalid_json" in invalid
    assert left == 0


def test_whoever_hangs_up_is_noticed_behind_pipelined_requests_too(tmp_path):
    """The first of two is at work when the client goes: it ends at once, not with its answer."""

    async def scenario():
        async with served(tmp_path, decode_0=FROZEN) as (made, port):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            body = orjson.dumps({"model": "m", "messages": MESSAGES})
            head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
            writer.write((head + body) * 2)
            await until(lambda: made.gateway.admission.running == 1)
            writer.close()
            await until(lambda: made.gateway.admission.idle)

    asyncio.run(scenario())

    assert {record["outcome"] for record in records(tmp_path)} == {"client_closed"}


def test_what_parsing_takes_is_reckoned_before_it(tmp_path):
    """Forty megabytes of empty lists would become a gigabyte of memory."""

    async def scenario():
        async with served(tmp_path) as (made, port), sdk(port) as client:
            answers = []
            for lists in (150_000, 10_000_000):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                body = b'{"messages": [' + b"[]," * lists + b"[]]}"
                head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(
                    body
                )
                writer.write(head + body)
                answers.append(await reader.readuntil(b"}}"))
                writer.close()
            await client.chat.completions.create(model="m", messages=MESSAGES)
            return answers, made.gateway.bodies.share.held_bytes

    (wrong, large), held = asyncio.run(scenario())

    assert b"messages[0] must be an object" in wrong
    assert large.startswith(b"HTTP/1.1 413")
    assert b"besides its images" in large
    assert held == 0


CHUNKED = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "trailers",
    [[b"a: " + b"x" * 60_000] * 200, [b"a: b\r\n" * 10_000] * 200],
    ids=["one long trailer", "many trailers"],
)
def test_trailers_are_bounded_like_a_head(tmp_path, trailers):
    """The connection ends before megabytes of them are collected."""

    async def scenario():
        async with served(tmp_path) as (_, port), sdk(port) as client:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            sent = 0
            with contextlib.suppress(ConnectionError):
                for piece in [CHUNKED, b"2\r\n{}\r\n0\r\n", *trailers]:
                    writer.write(piece)
                    await writer.drain()
                    sent += len(piece)
            writer.close()
            whole = await client.chat.completions.create(model="m", messages=MESSAGES)
            return sent, whole.choices[0].finish_reason

    sent, finished = asyncio.run(scenario())

    assert sent < 10_000_000
    assert finished == "stop"


def test_few_trailers_change_nothing(tmp_path):
    body = orjson.dumps({"model": "m", "messages": MESSAGES})
    head = CHUNKED.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
    chunk = b"%x\r\n%b\r\n0\r\nx-checksum: 1\r\n\r\n" % (len(body), body)

    assert exchange(tmp_path, [head + chunk]).startswith(b"HTTP/1.1 200")


def test_pipelined_requests_wait_as_bytes(tmp_path):
    """Thousands in one go: each is answered in turn, and one at most waits parsed."""
    waited = []

    class Counting(BoundedProtocol):
        def on_headers_complete(self):
            super().on_headers_complete()
            waited.append(len(self.pipeline))

    async def scenario():
        async with served(tmp_path, None, Counting) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            count = 2000
            writer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n" * count)
            answers = b""
            while answers.count(b"alive") < count:
                answers += await reader.read(1 << 20)
            writer.close()

    asyncio.run(scenario())

    assert len(waited) == 2000
    assert max(waited) == 1


def test_what_is_not_http_is_told_so_as_json(tmp_path):
    """The parser's own refusal has the form of every other."""
    answer = exchange(tmp_path, [CHUNKED + b"zz\r\n"])

    assert answer.startswith(b"HTTP/1.1 400")
    assert b'"code":"invalid_request"' in answer


def test_a_client_that_stops_reading_pauses_the_engine(tmp_path):
    """Backpressure reaches the decode leg: what the gateway holds for a stalled client is bounded."""
    most = 60_000_000
    floods = wire(pad_chars=50_000)

    async def scenario():
        async with served(tmp_path, decode_0=floods) as (made, port):
            _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
            fields = b'"stream":true,"max_tokens":%d,"ignore_eos":true' % (most // 50_000)
            body = b'{"model":"m",%s,"messages":[{"role":"user","content":"hi"}]}' % fields
            writer.write(
                b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
                + body
            )
            await until(lambda: made.legs["decode-0"].calls)
            (seen,) = made.legs["decode-0"].calls
            before, sent = -1, 0
            while sent != before:
                before = sent
                await asyncio.sleep(0.2)
                sent = sum(map(len, seen.sent))
            writer.transport.abort()
            await until(lambda: made.gateway.admission.idle)
            return sent

    assert 0 < asyncio.run(scenario()) < most / 2


class Impatient(BoundedProtocol):
    HEAD_LIMIT_BYTES = 2000
    HEAD_TIMEOUT_S = 0.05
    LINGER_S = 0.05


BODY = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'


def post(*headers):
    lines = [b"POST /v1/chat/completions HTTP/1.1", b"host: x", b"content-length: %d" % len(BODY), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + BODY


def exchange(tmp_path, pieces, protocol=BoundedProtocol):
    """What a raw client gets back for these pieces, each sent on its own."""

    async def scenario():
        async with served(tmp_path, protocol=protocol) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            async with asyncio.timeout(5):
                answer = await reader.read()
            writer.close()
            return answer

    return asyncio.run(scenario())


@pytest.mark.parametrize(
    "pieces",
    [
        [b"GET /healthz HTTP/1.1\r\nx: " + b"a" * 3000],
        [b"GET /healthz HTTP/1.1\r\n", *[b"h%d: v\r\n" % n for n in range(500)]],
        [b"GET /healthz HTTP/1.1\r\nx: " + b"a" * 3000 + b"\r\n\r\n"],
        [b"a" * 5000],
    ],
    ids=["one long header", "many headers", "whole but too long", "no line at all"],
)
def test_a_head_over_the_limit_is_refused_before_it_is_parsed(tmp_path, pieces):
    """Gluing a long header together once blocked the event loop for seconds."""
    answer = exchange(tmp_path, pieces, Impatient)

    assert answer.startswith(b"HTTP/1.1 431")
    assert b"headers_too_large" in answer


@pytest.mark.parametrize(
    ("pieces", "answer"),
    [([b"GET /healthz HTT"], b"HTTP/1.1 408"), ([], b"")],
    ids=["half a head", "silence"],
)
def test_a_head_that_does_not_come_closes_the_connection(tmp_path, pieces, answer):
    """A thousand silent connections must not stay for ever."""
    assert exchange(tmp_path, pieces, Impatient).startswith(answer)


def test_an_upgrade_that_is_not_spoken_does_not_cost_the_body(tmp_path):
    """curl --http2 and Java's client ask for h2c on their first request."""
    answer = exchange(
        tmp_path,
        [post(b"connection: close, Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"http2-settings: AAMAAABk")],
    )

    assert answer.startswith(b"HTTP/1.1 200")
    assert b'"completion_tokens":2' in answer


def test_a_head_may_come_in_any_pieces_and_requests_one_after_the_other(tmp_path):
    """Byte by byte, and two requests in one write."""
    alone = exchange(tmp_path, [bytes([byte]) for byte in post(b"connection: close")])
    both = exchange(tmp_path, [post() + post(b"connection: close")])

    assert alone.count(b"HTTP/1.1 200") == 1
    assert both.count(b"HTTP/1.1 200") == 2
