"""Server-sent events from arbitrary chunks: each event's exact bytes, and the data inside it.

Lines end with LF or CRLF, mixed as they come. A CR alone is not taken as a line end: no engine writes it, and
it would have to wait for the next byte. All events' bytes and the pending ones, joined, are the bytes fed.
"""

import re
from dataclasses import dataclass

from toolkit.core.http.errors import ProtocolViolation

_LF = 10
_blank_line = re.compile(rb"\n\r?\n").search


@dataclass(frozen=True, slots=True)
class Event:
    """raw: the event's exact bytes, blank line included. data: its data lines joined with LF, b"" if none."""

    raw: bytes
    data: bytes


class EventSplitter:
    """Fed chunks in any cut; gives each event once its blank line is there."""

    __slots__ = ("_held", "_limit")

    def __init__(self, max_event_bytes: int = 16_000_000) -> None:
        self._held = bytearray()
        self._limit = max_event_bytes

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that `chunk` completes. Raises ProtocolViolation when one passes the limit."""
        held = self._held
        at = 0
        events: list[Event] = []
        if held:
            search = max(0, len(held) - 2)  # a blank line may have begun in what was held
            held += chunk
            at = _end(held, 0, search)
            if at < 0:
                self._check(len(held))
                return events
            chunk = bytes(held)
            held.clear()
            self._add(events, chunk[:at], lf_only=False)
        lf_only = b"\r" not in chunk
        while at < len(chunk):
            if lf_only and chunk[at] != _LF:
                end = chunk.find(b"\n\n", at) + 2
                if end == 1:
                    end = -1
            else:
                end = _end(chunk, at, at)
            if end < 0:
                held += chunk[at:]
                self._check(len(held))
                break
            self._add(events, chunk[at:end], lf_only)
            at = end
        return events

    def pending(self) -> bytes:
        """The bytes of an unfinished event; at the end of a stream these were cut off."""
        return bytes(self._held)

    def _add(self, events: list[Event], raw: bytes, lf_only: bool) -> None:
        if len(raw) > self._limit:
            self._check(len(raw))
        if lf_only and raw.startswith(b"data: ") and raw.find(b"\n") == len(raw) - 2:
            data = raw[6:-2]  # what engines write, event after event
        else:
            data = _data(raw)
        events.append(Event(raw, data))

    def _check(self, size_bytes: int) -> None:
        if size_bytes > self._limit:
            raise ProtocolViolation(f"an event passes {self._limit} bytes", "body")


def _end(buffer: bytes | bytearray, at: int, search: int) -> int:
    """Where the event that begins at `at` ends; -1 when its blank line (sought from `search`) is missing."""
    if buffer.startswith(b"\n", at):  # a blank line by itself
        return at + 1
    if buffer.startswith(b"\r\n", at):
        return at + 2
    match = _blank_line(buffer, search)
    return match.end() if match else -1


def _data(raw: bytes) -> bytes:
    lines = []
    for line in raw.split(b"\n"):
        name, _, value = line.removesuffix(b"\r").partition(b":")
        if name == b"data":
            lines.append(value.removeprefix(b" "))
    return b"\n".join(lines)
