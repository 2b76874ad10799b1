"""Reading an OpenAI chat answer as bytes arrive: when tokens came, and how it ended. No I/O, no clock.

An answer under HTTP 200 is still a failure when it carries an error event, when the engine aborted it, or when it ends
without a finish_reason: servers report trouble in mid-stream that way, and the status is long gone by then.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from toolkit.core.http.sse import EventSplitter

PREFIX, END, SEAM, DONE = b"data: ", b"\n\n", b"\n\ndata: ", b"[DONE]"
MAX_CODE = 100  # a longer one is no name; reports count failures by it
ABORTS = frozenset({"abort", "error"})  # SGLang ends a request that it gave up with finish_reason "abort"


@dataclass(frozen=True, slots=True)
class Ending:
    """code: None for an answer that ended well, else the kind of failure."""

    code: str | None
    message: str | None = None


class Answer(Protocol):
    """A body under way. Feed it every chunk, then ask for its `ending`."""

    token_times: list[float]
    finish_reason: str | None
    usage: dict[str, Any]

    def feed(self, chunk: bytes, arrived_at: float) -> None: ...

    def ending(self) -> Ending: ...


class StreamedAnswer:
    """A text/event-stream body."""

    __slots__ = ("_events", "_fault", "_holding", "finish_reason", "token_times", "usage")

    def __init__(self) -> None:
        self._events = EventSplitter()
        self._holding = False  # an event's beginning is in the splitter
        self._fault: Ending | None = None
        self.token_times: list[float] = []
        self.finish_reason: str | None = None
        self.usage: dict[str, Any] = {}

    def feed(self, chunk: bytes, arrived_at: float) -> None:
        """Raises ProtocolViolation when an event passes the splitter's limit."""
        if not self._holding and chunk.startswith(PREFIX) and chunk.endswith(END) and b"\r" not in chunk:
            # What engines write, event after event: whole events of one data line each.
            if chunk.find(b"\n") == len(chunk) - 2:
                if (data := chunk[len(PREFIX) : -2]) and data != DONE:
                    self._read(data, arrived_at)
                return
            events = chunk[len(PREFIX) : -2].split(SEAM)
            if chunk.count(b"\n") == 2 * len(events):
                for data in events:
                    if data and data != DONE:
                        self._read(data, arrived_at)
                return
        for event in self._events.feed(chunk):
            if event.data and event.data != DONE:
                self._read(event.data, arrived_at)
        self._holding = bool(self._events.pending())

    def ending(self) -> Ending:
        """How the answer ended, once the body has."""
        if self._fault is not None:
            return self._fault
        if self.finish_reason is None:
            return Ending("no_finish_reason", "the stream ended without a finish_reason")
        if self.finish_reason in ABORTS:
            return Ending("engine_abort", f"finish_reason {self.finish_reason!r}")
        return Ending(None)

    def _read(self, data: bytes, arrived_at: float) -> None:
        try:
            chunk = orjson.loads(data)
            if "error" in chunk:
                self._fault = self._fault or error_ending(chunk, "error_event")
                return
            for choice in chunk.get("choices") or ():
                delta = choice.get("delta")
                if delta and (delta.get("content") or _bears_token(delta)):
                    self.token_times.append(arrived_at)
                if reason := choice.get("finish_reason"):
                    self.finish_reason = _text(reason)
            if usage := chunk.get("usage"):
                self.usage = _counts(usage)
        except (ValueError, TypeError, AttributeError):
            self._fault = self._fault or Ending("bad_event", f"not a chat chunk: {data[:200]!r}")


class WholeAnswer:
    """A JSON body that comes at once: its first token is there when all of it is."""

    def __init__(self) -> None:
        self._body = bytearray()
        self._last_at = 0.0
        self.token_times: list[float] = []
        self.finish_reason: str | None = None
        self.usage: dict[str, Any] = {}

    def feed(self, chunk: bytes, arrived_at: float) -> None:
        self._body += chunk
        self._last_at = arrived_at

    def ending(self) -> Ending:
        try:
            answer = orjson.loads(self._body)
            if "error" in answer:
                return error_ending(answer, "error_body")
            choice = answer["choices"][0]
            self.usage = _counts(answer.get("usage"))
            self.finish_reason = _text(choice.get("finish_reason"))
            if _bears_token(choice.get("message") or {}):
                self.token_times = [self._last_at]
        except (ValueError, TypeError, AttributeError, LookupError):
            return Ending("bad_body", f"not a chat completion: {bytes(self._body[:200])!r}")
        if self.finish_reason is None:
            return Ending("no_finish_reason", "the answer has no finish_reason")
        if self.finish_reason in ABORTS:
            return Ending("engine_abort", f"finish_reason {self.finish_reason!r}")
        return Ending(None)


def error_ending(body: Any, fallback: str) -> Ending:
    """The ending that an OpenAI error object describes; `fallback` where it names no code."""
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict):
        return Ending(fallback, None if error is None else str(error)[:300])
    code = error.get("code")
    message = error.get("message")
    named = isinstance(code, str) and 0 < len(code) <= MAX_CODE and code.isprintable() and not code.isdigit()
    return Ending(code if named else fallback, None if message is None else str(message)[:300])


def _text(reason: Any) -> str | None:
    if reason is not None and not isinstance(reason, str):
        raise TypeError("a finish_reason is a text")
    return reason


def _counts(usage: Any) -> dict[str, Any]:
    """What a server counted; what is no count is left out, since totals are made of these."""
    if not isinstance(usage, dict):
        return {}
    return {name: count for name, count in usage.items() if type(count) is int and count >= 0}


def _bears_token(delta: dict[str, Any]) -> bool:
    # A chunk with only a role says that the answer begins; nothing can be read of it yet.
    return bool(delta.get("content") or delta.get("reasoning_content") or delta.get("tool_calls"))
