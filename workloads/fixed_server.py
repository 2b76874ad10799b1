"""A chat server whose every answer follows one schedule, and that stamps what it did: the ruler for a load generator.

    python -m workloads.fixed_server --ttft 0.1 --itl 0.01 --events 33

It prints `{"port": N}` and serves 127.0.0.1 until its standard input closes. Every POST with a body is answered by
`events` server-sent events, one due `ttft` after the request was read and one each `itl` after it: tokens, then
finish_reason with the usage, then [DONE]. `GET /stamps` gives and forgets the stamps of the ended answers; they are
kept here and not in the events, so that a client under test runs the path that it runs against a real server.
"""

import argparse
import asyncio
import heapq
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from workloads.alarm import Alarm, make_alarm

EVENT_BYTES = 228  # an OpenAI chat chunk of one token, as engines write it
MODEL = "fixed-schedule"
MAX_HEAD_BYTES = 65_536
HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nx-request-id: %d\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
LAST_CHUNK = b"0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Schedule:
    """ttft_s: from the whole request read to the first event. itl_s: between events. events: [DONE] included."""

    ttft_s: float = 0.1
    itl_s: float = 0.01
    events: int = 33

    @property
    def tokens(self) -> int:
        return self.events - 2


@dataclass(frozen=True, slots=True)
class Stamps:
    """What the server did for one answer, on time.monotonic(), which all processes of a machine share.

    received_at: the request's first bytes were read; read_at: its last. written_at: each event, before its send.
    """

    answer: str
    received_at: float
    read_at: float
    written_at: tuple[float, ...]


def chunks(schedule: Schedule) -> tuple[bytes, ...]:
    """The events of an answer as HTTP chunks."""
    token = _event({"choices": [{"index": 0, "delta": {"content": "%"}, "finish_reason": None}]})
    usage = {"prompt_tokens": 16, "completion_tokens": schedule.tokens}
    last = _event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": usage})
    events = [token] * schedule.tokens + [last, b"data: [DONE]\n\n"]
    return tuple(b"%x\r\n%s\r\n" % (len(event), event) for event in events)


def _event(content: dict[str, Any]) -> bytes:
    frame = {"id": "chatcmpl-0", "object": "chat.completion.chunk", "created": 1, "model": MODEL, **content}
    data = json.dumps(frame, separators=(",", ":")).encode()
    filler = b"x" * (EVENT_BYTES - len(data) - len(b'data: ,"_":""\n\n'))
    return b"data: " + data[:-1] + b',"_":"' + filler + b'"}\n\n'


class Writer:
    """The due writes of all streams, in order of time."""

    def __init__(self, schedule: Schedule, alarm: Alarm) -> None:
        self.schedule = schedule
        self.chunks = chunks(schedule)
        self.ended: list[Stamps] = []
        self.answers = 0
        self._alarm = alarm
        self._due: list[tuple[float, int, Stream]] = []
        self._armed_for = float("inf")

    def begin(self, stream: "Stream") -> int:
        """Plan the stream's first event; the answer's number."""
        self.answers += 1
        self._plan(stream.read_at + self.schedule.ttft_s, self.answers, stream)
        return self.answers

    def _plan(self, at: float, number: int, stream: "Stream") -> None:
        heapq.heappush(self._due, (at, number, stream))
        if at < self._armed_for:
            self._armed_for = at
            self._alarm.set(at, self._tick)

    def _tick(self) -> None:
        due, schedule = self._due, self.schedule
        self._armed_for = 0.0  # no alarm from inside
        while due and due[0][0] <= time.monotonic():
            at, number, stream = due[0]
            if stream.write_next(number):
                heapq.heapreplace(due, (at + schedule.itl_s, number, stream))
            else:
                heapq.heappop(due)
        self._armed_for = due[0][0] if due else float("inf")
        if due:
            self._alarm.set(self._armed_for, self._tick)


class Stream(asyncio.Protocol):
    """One connection; one answer at a time."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._head = bytearray()
        self._body_left = -1  # -1: the head is not whole yet
        self._number = 0  # of the answer under way
        self.received_at = self.read_at = 0.0
        self._written: list[float] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._fd: int = transport.get_extra_info("socket").fileno()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._number = -1

    def data_received(self, data: bytes) -> None:
        at = time.monotonic()
        if self._body_left < 0:
            if not self._head:
                self.received_at = at
            self._head += data
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                if len(self._head) > MAX_HEAD_BYTES:
                    self._transport.abort()
                return
            if self._head.startswith(b"GET "):
                path = bytes(self._head[4 : self._head.index(b" ", 4)]).decode("latin-1")
                self._head.clear()
                self._get(path)
                return
            self._body_left = _content_length(bytes(self._head[:end]))
            data = bytes(self._head[end + 4 :])
            self._head.clear()
        self._body_left -= len(data)
        if self._body_left <= 0:
            self._body_left = -1
            self.read_at = time.monotonic()
            self._number = self._writer.begin(self)

    def write_next(self, number: int) -> bool:
        """Write the next event of that answer; whether there is a further one."""
        if number != self._number or self._transport.is_closing():
            return False  # the client went away
        chunks, done = self._writer.chunks, len(self._written)
        data = chunks[done]
        if not done:
            data = HEAD % number + data
        last = done + 1 == len(chunks)
        if last:
            data += LAST_CHUNK
        self._written.append(time.monotonic())
        self._send(data)
        if last:
            self._writer.ended.append(
                Stamps(str(number), self.received_at, self.read_at, tuple(self._written))
            )
            self._written.clear()
            self._number = 0
        return not last

    def _send(self, data: bytes) -> None:
        # The transport would send at the end of the loop's turn, after the stamp and after other streams' events.
        if not self._transport.get_write_buffer_size():
            try:
                data = data[os.write(self._fd, data) :]
            except BlockingIOError:
                pass
            except OSError:
                self._transport.abort()
                return
        if data:
            self._transport.write(data)

    def _get(self, path: str) -> None:
        body = b'{"object":"list","data":[{"id":"%s","object":"model"}]}' % MODEL.encode()
        if path == "/stamps":
            ended, self._writer.ended = self._writer.ended, []
            body = json.dumps([[s.answer, s.received_at, s.read_at, s.written_at] for s in ended]).encode()
        status = "200 OK" if path in ("/v1/models", "/readyz", "/health", "/stamps") else "404 Not Found"
        head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        self._transport.write(head.encode() + body)


def read_stamps(body: bytes) -> list[Stamps]:
    """The answer of `GET /stamps`."""
    return [Stamps(answer, first, last, tuple(written)) for answer, first, last, written in json.loads(body)]


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            return int(value)
    return 0


async def serve(schedule: Schedule, port: int, on_port: Callable[[int], None], stop: asyncio.Event) -> None:
    """Serve on 127.0.0.1 until told to stop. port 0: any free one."""
    loop = asyncio.get_running_loop()
    alarm = make_alarm()
    writer = Writer(schedule, alarm)
    server = await loop.create_server(lambda: Stream(writer), "127.0.0.1", port, backlog=4096)
    on_port(server.sockets[0].getsockname()[1])
    await stop.wait()
    alarm.close()
    server.close()


def main() -> None:
    import uvloop

    parser = argparse.ArgumentParser(
        description="Fixed-schedule chat server, until its standard input closes."
    )
    defaults = Schedule()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ttft", type=float, default=defaults.ttft_s, help="seconds")
    parser.add_argument("--itl", type=float, default=defaults.itl_s, help="seconds")
    parser.add_argument("--events", type=int, default=defaults.events, help="[DONE] included; at least 3")
    asked = parser.parse_args()
    if asked.events < 3 or asked.ttft < 0 or asked.itl <= 0:
        parser.error("--events is at least 3, --ttft at least 0, --itl above 0")

    async def run() -> None:
        stop = asyncio.Event()
        stdin = sys.stdin.fileno()

        def heard() -> None:
            if not os.read(stdin, 4096):
                stop.set()

        asyncio.get_running_loop().add_reader(stdin, heard)
        schedule = Schedule(asked.ttft, asked.itl, asked.events)
        await serve(schedule, asked.port, lambda port: print(json.dumps({"port": port}), flush=True), stop)

    uvloop.run(run())


if __name__ == "__main__":
    main()
