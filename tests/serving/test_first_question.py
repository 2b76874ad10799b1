"""The first question that `toolkit serve` asks through the gateway."""

import asyncio
from collections.abc import Awaitable, Callable

from serving.launcher import FirstAnswer, ask
from toolkit.core.http.client import HttpClient

Peer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def answers(text: bytes, seen: list[bytes] | None = None) -> Peer:
    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if seen is not None:
            seen.append(head)
        writer.write(text)
        await writer.drain()
        writer.close()

    return peer


def asked(peer: Peer) -> FirstAnswer:
    async def main() -> FirstAnswer:
        client = HttpClient()
        server = await asyncio.start_server(peer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            return await ask(client, f"http://127.0.0.1:{port}/v1/chat/completions", b"{}")
        finally:
            await client.close()
            server.close()
            await server.wait_closed()

    return asyncio.run(main())


def whole(status: str, body: bytes) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


def test_a_whole_stream_is_an_answer_and_the_budget_is_long() -> None:
    """The first image loads much in an engine: the usual budget would not do."""
    seen: list[bytes] = []

    assert asked(answers(whole("200 OK", b"data: {}\n\ndata: [DONE]\n\n"), seen)).refusal == ""
    assert b"x-ttft-budget-ms: 60000" in seen[0].lower()


def test_a_refusal_is_told_in_the_gateways_words() -> None:
    """A text-only model cannot look at photos; that is no reason not to serve."""
    assert asked(answers(whole("400 Bad Request", b"no images here"))).refusal == "no images here"


def test_a_stream_that_breaks_off_is_no_answer() -> None:
    """200 alone says nothing."""
    assert asked(answers(whole("200 OK", b'data: {"error": "died"}\n\n'))).refusal.startswith("data: ")
    assert asked(answers(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\ndata")).refusal != ""
