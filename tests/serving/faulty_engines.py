"""Engines that fail as they are told, in the place of the gateway's HTTP client: no sockets, so thousands of requests with
random faults go through the whole gateway in seconds. What they say is what the real engine was seen to say; the same faults
on real sockets and engines are in test_retrying.py and tests/live/test_faults.py. An engine is reached at http://NAME.

Prefill computes one prompt after the other, so load makes it late. Each attempt draws its fate; `strike` befalls an engine.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import orjson

from serving.service import EngineEndpoint
from toolkit.core.http.errors import ConnectFailed, ConnectionLost, TransportError, Truncated


class Fate(StrEnum):
    """What becomes of an attempt."""

    SERVED = "served"
    FULL = "503"
    LIMITED = "429"
    FAILED = "500"
    REJECTED = "400"
    TRANSFER = "transfer failure"
    LOST = "connection lost before an answer"
    BROKEN = "connection broken after the first token"
    CUT = "stream ended without a finish"
    GARBLED = "an event that is no JSON"
    SILENT = "no answer at all"
    STUCK = "silence after the first token"
    LATE = "first token after the budget"


REFUSALS = {Fate.FULL: 503, Fate.LIMITED: 429, Fate.FAILED: 500, Fate.REJECTED: 400}
NEVER_S = 1e6
TOKEN_S = 0.01
LATE_S = 8.0
POOL_TOKENS, PAGE_SIZE = 20_000, 16
"""Of each decode; what requests hold there only the gateway knows."""


def event(document: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(document) + b"\n\n"


def choice(delta: dict[str, str], reason: str | None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


FIRST = event(choice({"role": "assistant", "content": ""}, None)) + event(choice({"content": "o"}, None))
LAST = event(choice({"content": "k"}, "stop")) + b"data: [DONE]\n\n"
WHOLE = orjson.dumps({"choices": [{"index": 0, "message": {"content": "ok"}, "finish_reason": "stop"}]})

Script = Sequence[tuple[float, bytes | TransportError]]
"""What comes out after how many seconds, one after the other."""


@dataclass(eq=False)
class Answer:
    """As an HTTP Response. ended: called once, when its last piece came or it was closed; told whether it came whole."""

    status: int
    script: Script
    ended: Callable[[bool], None]
    kind: str = "application/json"
    closed: bool = False

    def header(self, name: str) -> str | None:
        return self.kind if name == "content-type" else None

    async def chunks(self) -> AsyncIterator[tuple[bytes, float]]:
        left = len(self.script)
        for after_s, piece in self.script:
            if after_s:
                await asyncio.sleep(after_s)
            if isinstance(piece, TransportError):
                self._end(whole=False)
                raise piece
            left -= 1
            if not left:
                self._end(whole=True)
            yield piece, asyncio.get_running_loop().time()

    async def read(self, limit: int = 0) -> bytes:
        return b"".join([piece async for piece, _ in self.chunks()])

    def close(self) -> None:
        self._end(whole=False)

    def _end(self, whole: bool) -> None:
        if not self.closed:
            self.closed = True
            self.ended(whole)


@dataclass(eq=False)
class Meeting:
    """Two legs with one bootstrap room."""

    fate: Fate
    struck: str  # the leg that it happens to
    legs: int = 0
    computed: asyncio.Event = field(default_factory=asyncio.Event)


class FaultyEngines:
    """Answers what the gateway's HttpClient is asked. working: by rid, the engine that still works on it, for whomever."""

    def __init__(
        self,
        engines: Sequence[EngineEndpoint],
        source: random.Random,
        odds: dict[Fate, float],
        prefill_s: float,
    ) -> None:
        self._engines = {engine.name: engine for engine in engines}
        self._source = source
        self._odds = odds
        self._prefill_s = prefill_s
        self._free_at: dict[str, float] = dict.fromkeys((one.name for one in engines), 0.0)
        self._meetings: dict[int, Meeting] = {}
        self.down: set[str] = set()
        self.frozen: set[str] = set()
        self.working: dict[str, str] = {}
        self.drawn: Counter[Fate] = Counter()
        self.posted = 0
        self.open_connections = 0

    def strike(self, engine: str, how: str) -> None:
        """down: nothing is answered, and all that it worked on is gone. frozen: it hears and says nothing. well: it works."""
        self.down.discard(engine)
        self.frozen.discard(engine)
        if how == "down":
            self.down.add(engine)
            self.working = {rid: name for rid, name in self.working.items() if name != engine}
        elif how == "frozen":
            self.frozen.add(engine)

    async def close(self) -> None:
        """As a client's."""

    async def send(self, method: str, url: str, headers: Any = (), body: Any = b"") -> Answer:
        _, _, name, path = url.split("/", 3)
        engine = self._engines[name]
        self.open_connections += 1
        try:
            if engine.name in self.down:
                raise ConnectFailed(f"{name}: refused")
            if path == "abort_request":
                self.working.pop(orjson.loads(body)["rid"], None)
            if engine.name in self.frozen and path != "ready":
                await asyncio.sleep(NEVER_S)
            if path == "v1/chat/completions":
                return await self._leg(engine, orjson.loads(b"".join(body)))
            return self._told(200, self._page(path))
        except BaseException:
            self.open_connections -= 1
            raise

    def _page(self, path: str) -> dict[str, Any]:
        if path == "server_info":
            return {"page_size": PAGE_SIZE}
        now = asyncio.get_running_loop().time()
        return {"loads": [{"timestamp": now, "max_total_num_tokens": POOL_TOKENS, "num_used_tokens": 0}]}

    def _told(self, status: int, document: object) -> Answer:
        return Answer(status, [(0.0, orjson.dumps(document))], self._freed)

    def _freed(self, _: bool) -> None:
        self.open_connections -= 1

    async def _leg(self, engine: EngineEndpoint, asked: dict[str, Any]) -> Answer:
        rid, room = asked["rid"], asked["bootstrap_room"]
        self.working[rid] = engine.name
        meeting = self._meetings.get(room)
        if meeting is None:
            meeting = self._meetings[room] = self._drawn()
        meeting.legs += 1
        if engine.role == "prefill":
            self.posted += 1
            self._compute(engine, meeting)
        mine = meeting.struck == engine.role
        if mine and meeting.fate in REFUSALS:
            self.working.pop(rid, None)
            status = REFUSALS[meeting.fate]
            return self._told(status, {"error": {"message": "as it was told to", "code": status}})
        if mine and meeting.fate is Fate.LOST:
            self.working.pop(rid, None)
            await asyncio.sleep(self._source.uniform(0, 0.02))
            raise ConnectionLost(f"{engine.name}: reset")
        await meeting.computed.wait()
        if meeting.fate is Fate.TRANSFER:
            self.working.pop(rid, None)
            return self._told(500, {"error": {"message": "Decode transfer failed for request", "code": 500}})

        def ended(whole: bool) -> None:
            self.open_connections -= 1
            if whole:
                self.working.pop(rid, None)
                if engine.role == "decode":
                    self._meetings.pop(room, None)

        script, kind = scripts(meeting.fate, asked["stream"], engine.role)
        return Answer(200, script, ended, kind)

    def _compute(self, engine: EngineEndpoint, meeting: Meeting) -> None:
        loop = asyncio.get_running_loop()
        self._free_at[engine.name] = max(loop.time(), self._free_at[engine.name]) + self._prefill_s
        if meeting.fate is not Fate.SILENT:
            loop.call_at(self._free_at[engine.name], meeting.computed.set)

    def _drawn(self) -> Meeting:
        (fate,) = self._source.choices(list(self._odds), list(self._odds.values()))
        self.drawn[fate] += 1
        return Meeting(fate, self._source.choice(("prefill", "decode")))


EVENTS = "text/event-stream"


def scripts(fate: Fate, stream: bool, role: str) -> tuple[Script, str]:
    """What a leg says once its prefill is computed, and of which type. Prefill says all it has at once."""
    if role == "prefill":
        return ([(0.0, FIRST + LAST)], EVENTS) if stream else ([(0.0, WHOLE)], "application/json")
    first_s = LATE_S if fate is Fate.LATE else TOKEN_S
    if stream:
        after: dict[Fate, Script] = {
            Fate.BROKEN: [(TOKEN_S, Truncated("reset"))],
            Fate.CUT: [],
            Fate.GARBLED: [(TOKEN_S, b"data: {oops\n\n")],
            Fate.STUCK: [(NEVER_S, b"")],
        }
        return [(first_s, FIRST), *after.get(fate, [(TOKEN_S, LAST)])], EVENTS
    instead: dict[Fate, tuple[float, bytes | TransportError]] = {
        Fate.BROKEN: (first_s, Truncated("reset")),
        Fate.CUT: (first_s, b"{}"),
        Fate.GARBLED: (first_s, b"{oops"),
        Fate.STUCK: (NEVER_S, b""),
    }
    return [instead.get(fate, (first_s + TOKEN_S, WHOLE))], "application/json"
