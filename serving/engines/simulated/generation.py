"""One generation over HTTP: the request into the scheduler, its events out as SGLang would write them."""

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from serving.engines.simulated import dialect
from serving.engines.simulated.effects import Ended, Failed, Role, Token
from serving.engines.simulated.engine import Engine, Heard
from serving.engines.simulated.http import Call, Gone
from serving.engines.simulated.metrics import RequestMetrics
from serving.engines.simulated.prompt import Ask, Refused
from serving.engines.simulated.scheduler import DuplicateRid
from serving.engines.simulated.state import Job

STREAM_GONE_S = 2.0
"""A closed stream is aborted by a task that waits so long first (tokenizer_manager.py:2427)."""
WHOLE_GONE_S = 4.0
"""A closed connection without a stream is noticed at the next look (SGLANG_REQUEST_STATE_WAIT_TIMEOUT)."""
QUEUE_FULL = "The request queue is full."


class Writer(Protocol):
    """How one of the two dialects says things. `index`: which of n samples."""

    def token(self, number: int, index: int, /) -> list[bytes]: ...

    def end(self, reason: str, made: int, index: int, /) -> list[bytes]: ...

    def after(self, made: int, /) -> list[bytes]: ...

    def failure(self, message: str, status: int) -> bytes: ...

    def whole(self, reason: str, made: int, samples: int) -> object: ...

    def refused(self, message: str, kind: str, status: int) -> object: ...

    def refused_in_stream(self, error: Refused) -> bytes | None:
        """The event that tells of a refusal under HTTP 200; None: it has a status of its own."""
        ...


class Closed(Exception):
    """The client went away before the end."""


@dataclass(slots=True)
class _Sample:
    index: int
    made: int = 0
    reason: str = ""
    at: float = 0.0


@dataclass(slots=True)
class Generation:
    """One request of a client. events: of all its samples; None once the client has closed."""

    call: Call
    ask: Ask
    engine: Engine
    role: Role
    metrics: RequestMetrics | None
    began: float
    events: asyncio.Queue[Heard | None] = field(default_factory=asyncio.Queue)
    samples: dict[str, _Sample] = field(default_factory=dict)

    async def run(self, rid: str, writer: Writer) -> None:
        """From submission to the last byte. While the engine is paused, a new request is held back from its
        scheduler, and an abort misses it (tokenizer_manager.py:938)."""
        await self.engine.going.wait()
        try:
            self._submit(rid)
        except Refused as error:
            await self._refuse(writer, error)
            return
        watch = asyncio.create_task(self.call.gone())
        watch.add_done_callback(lambda task: None if task.cancelled() else self.events.put_nowait(None))
        try:
            await (self._stream(writer) if self.ask.stream else self._whole(writer))
        except (Closed, Gone):
            wait_s = STREAM_GONE_S if self.ask.stream else WHOLE_GONE_S
            for sample in self.samples:
                asyncio.get_running_loop().call_later(wait_s, self.engine.abort, sample)
        finally:
            watch.cancel()

    def _submit(self, rid: str) -> None:
        """Raises Refused."""
        ask, where = self.ask, self.ask.rendezvous
        paired = self.role != "unified"
        if paired and where.room is None and not where.fake:
            raise Refused(
                f"Invalid request: Disaggregated request received without bootstrap room id. req.rid={rid!r}",
                inside=True,
            )
        if self.engine.scheduler.faults.answer_503:
            raise Refused(QUEUE_FULL, "503", 503, inside=True)
        limit = self.engine.scheduler.limits.max_total_tokens
        if ask.prompt_tokens > limit:
            raise Refused(
                f"Request has {ask.prompt_tokens} tokens, and the KV cache holds {limit}.", inside=True
            )
        # With several samples SGLang makes up the rids, and all of them share the one room (io_struct.py:382).
        rids = [rid] if ask.samples == 1 else [uuid.uuid4().hex for _ in range(ask.samples)]
        for index, one in enumerate(rids):
            job = Job(
                rid=one,
                prompt_tokens=ask.prompt_tokens,
                answer_tokens=1 if self.role == "prefill" else ask.answer.tokens,
                ends_with=ask.answer.reason,
                image_tokens=ask.image_tokens,
                room=where.room or 0,
                bootstrap=where.address if paired else "",
                fake=where.fake,
            )
            try:
                self.engine.submit(job, self.events)
            except DuplicateRid:
                raise Refused(f"Duplicate request ID detected: {one}") from None
            self.samples[one] = _Sample(index)

    async def _stream(self, writer: Writer) -> None:
        begun = False
        left = len(self.samples)
        while left:
            heard = await self._next()
            sample = self.samples[heard.rid]
            if not begun:
                await self.call.begin_events()
                begun = True
            if isinstance(heard, Failed):
                await self.call.event(writer.failure(heard.message, heard.status))
                break
            pieces = (
                writer.token(heard.number, sample.index)
                if isinstance(heard, Token)
                else writer.end(heard.reason, heard.made, sample.index)
            )
            left -= isinstance(heard, Ended)
            for piece in pieces:
                await self.call.event(piece)
        else:
            for piece in writer.after(sum(sample.made for sample in self.samples.values())):
                await self.call.event(piece)
        await self.call.event(dialect.SSE_DONE)
        await self.call.end()

    async def _whole(self, writer: Writer) -> None:
        while not all(sample.reason for sample in self.samples.values()):
            heard = await self._next()
            if isinstance(heard, Failed):
                kind = "BadRequestError" if heard.status == 400 else str(heard.status)
                await self.call.json(writer.refused(heard.message, kind, heard.status), heard.status)
                return
        last = next(iter(self.samples.values()))
        await self.call.json(writer.whole(last.reason, last.made, len(self.samples)))

    async def _next(self) -> Heard:
        """Raises Closed."""
        heard = await self.events.get()
        if heard is None:
            raise Closed
        now = self.engine.now
        sample = self.samples[heard.rid]
        if isinstance(heard, Token):
            if heard.number == self.engine.scheduler.faults.abort_after_tokens:
                self.engine.abort(heard.rid)
            if self.metrics is not None:
                if sample.made:
                    self.metrics.next_token(now - sample.at)
                else:
                    self.metrics.first_token(now - self.began, stream=self.ask.stream)
            sample.made, sample.at = heard.number, now
        elif isinstance(heard, Ended):
            sample.reason = heard.reason
            if self.metrics is not None:
                if heard.reason == "abort":
                    self.metrics.aborted()
                self.metrics.ended(
                    now - self.began, self.ask.prompt_tokens, heard.made, stream=self.ask.stream
                )
        return heard

    async def _refuse(self, writer: Writer, error: Refused) -> None:
        for sample in self.samples:
            self.engine.abort(sample)
        told = writer.refused_in_stream(error) if self.ask.stream else None
        if told is not None:
            await self.call.begin_events()
            await self.call.event(told)
            await self.call.event(dialect.SSE_DONE)
            await self.call.end()
        else:
            await self.call.json(writer.refused(error.message, error.kind, error.status), error.status)


class ChatAnswer:
    """The chat-completions dialect of one answer. created: Unix seconds. pad_chars: the wire fault of that name."""

    def __init__(self, ask: Ask, rid: str, created: int, pad_chars: int = 0) -> None:
        self._ask = ask
        self._chunks = dialect.ChatWriter(ask, rid, created)
        self._pad = "x" * pad_chars
        self._named: set[int] = set()

    def token(self, number: int, index: int) -> list[bytes]:
        text = self._ask.answer.delta(number) + self._pad
        return [*self._role(index), *([self._chunks.content(text, number, index)] if text else [])]

    def end(self, reason: str, _made: int, index: int) -> list[bytes]:
        return [*self._role(index), self._chunks.finish(reason, index)]

    def after(self, made: int) -> list[bytes]:
        return [self._chunks.usage(made)] if self._ask.include_usage else []

    def failure(self, message: str, status: int) -> bytes:
        return dialect.stream_failure(message, status)

    def whole(self, reason: str, made: int, samples: int) -> object:
        return self._chunks.whole(reason, made, samples)

    def refused(self, message: str, kind: str, status: int) -> object:
        return dialect.refusal(message, kind, status)

    def refused_in_stream(self, error: Refused) -> bytes | None:
        return self.failure(error.message, error.status) if error.inside else None

    def _role(self, index: int) -> list[bytes]:
        if index in self._named:
            return []
        self._named.add(index)
        return [self._chunks.role(index)]


class GenerateAnswer:
    """The /generate dialect: each event holds the text so far; a failure is a finish_reason under HTTP 200."""

    def __init__(self, ask: Ask, rid: str, took: Callable[[], float]) -> None:
        self._ask = ask
        self._rid = rid
        self._took = took

    def token(self, number: int, _index: int) -> list[bytes]:
        return [dialect.sse(self._so_far(number, None))]

    def end(self, reason: str, made: int, _index: int) -> list[bytes]:
        return [dialect.sse(self._so_far(made, dialect.finish_of(self._ask, reason, made)))]

    def after(self, _made: int) -> list[bytes]:
        return []

    def failure(self, message: str, status: int) -> bytes:
        finish = {"type": "abort", "message": message, "status_code": status, "err_type": None}
        return dialect.sse(self._so_far(0, finish))

    def whole(self, reason: str, made: int, samples: int) -> object:
        answer = self._so_far(made, dialect.finish_of(self._ask, reason, made))
        return answer if samples == 1 else [answer] * samples

    def refused(self, message: str, kind: str, status: int) -> object:
        return {"error": {"message": message}} if status == 400 else dialect.refusal(message, kind, status)

    def refused_in_stream(self, error: Refused) -> bytes | None:
        return (
            self.failure(error.message, error.status)
            if error.inside
            else dialect.generate_fault(error.message)
        )

    def _so_far(self, made: int, finish: dict[str, object] | None) -> dict[str, object]:
        return dialect.generated(self._ask, self._rid, made, finish, self._took())
