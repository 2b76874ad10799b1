"""Where a body ends (RFC 9112 section 6), as four small machines that take bytes in any cut and give payload.

`feed` returns the payload inside `data`; afterwards `done` says whether the body is complete, and `rest`
holds what followed it. `eof` is told when the peer closed. Pure: no sockets, no clock.
"""

from functools import lru_cache

from toolkit.core.http.errors import ProtocolViolation, Truncated
from toolkit.core.http.head import MAX_HEAD_BYTES, Head

MAX_CHUNK_LINE_BYTES = 1024  # a size and its extensions
MAX_CHUNK_SIZE_DIGITS = 15  # hexadecimal: below 2**60, so that no peer's arithmetic overflows

MAX_SHORT_LINE_BYTES = 18  # all the digits a size may have, and its line end
_HEX = b"0123456789abcdefABCDEF"


class Body:
    """No body at all; also what the other three share."""

    __slots__ = ("done", "rest")

    def __init__(self) -> None:
        self.done = True
        self.rest = b""

    def feed(self, data: bytes) -> bytes:
        """The payload inside `data`. Raises ProtocolViolation."""
        self.rest += data
        return b""

    def eof(self) -> None:
        """The peer closed. Raises Truncated when the body was not complete."""


class SizedBody(Body):
    """`content-length` bytes."""

    __slots__ = ("_left", "_size")

    def __init__(self, size_bytes: int) -> None:
        super().__init__()
        self.done = size_bytes == 0
        self._size = self._left = size_bytes

    def feed(self, data: bytes) -> bytes:
        left = self._left
        size = len(data)
        if size < left:
            self._left = left - size
            return data
        self._left = 0
        self.done = True
        if size == left:
            return data
        self.rest += data[left:]
        return data[:left]

    def eof(self) -> None:
        if not self.done:
            raise Truncated(f"closed after {self._size - self._left} of {self._size} body bytes")


class OpenBody(Body):
    """All bytes until the peer closes."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__()
        self.done = False

    def feed(self, data: bytes) -> bytes:
        return data

    def eof(self) -> None:
        self.done = True


_SIZE, _DATA, _DATA_END, _TRAILER = range(4)


class ChunkedBody(Body):
    """`transfer-encoding: chunked`; extensions and trailers are read and dropped.

    SIZE --size > 0--> DATA --all of it--> DATA_END --CRLF--> SIZE
    SIZE --size = 0--> TRAILER --line--> TRAILER --empty line--> done
    """

    __slots__ = ("_held", "_left", "_state", "_trailer_bytes")

    def __init__(self) -> None:
        super().__init__()
        self.done = False
        self._state = _SIZE
        self._left = 0  # payload bytes of the current chunk still to come
        self._held = b""  # the beginning of a line whose end is not here yet
        self._trailer_bytes = 0

    def feed(self, data: bytes) -> bytes:
        if self.done:
            return super().feed(data)
        if self._held:
            data = self._held + data
            self._held = b""
        elif self._state == _SIZE:
            # What servers write, event after event: one whole chunk in one read.
            line_end = data.find(b"\r\n", 0, MAX_SHORT_LINE_BYTES)
            if line_end > 0 and data.endswith(b"\r\n"):
                size = _chunk_size(data[:line_end])
                if size and size + line_end + 4 == len(data):
                    return data[line_end + 2 : -2]
        payload = b""
        more: list[bytes] | None = None
        at, end, state = 0, len(data), self._state
        while at < end:
            if state == _DATA:
                stop = at + self._left
                piece = data[at:stop]
                if payload:
                    if more is None:
                        more = [payload]
                    more.append(piece)
                else:
                    payload = piece
                if stop > end:
                    self._left = stop - end
                    break
                at, state = stop, _DATA_END
            elif state == _DATA_END:
                if data.startswith(b"\r\n", at):
                    at, state = at + 2, _SIZE
                elif end - at == 1 and data[at] == 13:
                    self._held = b"\r"
                    break
                else:
                    raise ProtocolViolation("a chunk is not followed by a line end", "body")
            else:
                stop = data.find(b"\r\n", at, at + MAX_CHUNK_LINE_BYTES if state == _SIZE else end)
                if stop < 0:
                    self._hold(data[at:], state)
                    break
                if state == _SIZE:
                    self._left = _chunk_size(data[at:stop])
                    state = _DATA if self._left else _TRAILER
                elif stop == at:
                    self.done = True
                    self.rest = data[at + 2 :]
                    break
                else:
                    self._count_trailer(stop - at)
                at = stop + 2
        self._state = state
        return payload if more is None else b"".join(more)

    def _hold(self, line: bytes, state: int) -> None:
        if state == _TRAILER:
            if self._trailer_bytes + len(line) > MAX_HEAD_BYTES:
                self._count_trailer(len(line))
        elif len(line) >= MAX_CHUNK_LINE_BYTES:
            raise ProtocolViolation("a chunk's size line is too long", "body")
        self._held = line

    def _count_trailer(self, size: int) -> None:
        self._trailer_bytes += size
        if self._trailer_bytes > MAX_HEAD_BYTES:
            raise ProtocolViolation(f"more than {MAX_HEAD_BYTES} bytes of trailers", "body")

    def eof(self) -> None:
        if not self.done:
            raise Truncated("closed before the last chunk")


@lru_cache(maxsize=4096)  # sizes of events repeat; reading one costs more than remembering it
def _chunk_size(line: bytes) -> int:
    digits = line if line.isalnum() else line.partition(b";")[0].rstrip(b" \t")
    if not digits or digits.strip(_HEX) or len(digits.lstrip(b"0")) > MAX_CHUNK_SIZE_DIGITS:
        raise ProtocolViolation(f"a chunk's size is malformed: {digits[:40]!r}", "body")
    return int(digits, 16)


def body_of(method: str, head: Head) -> Body:
    """The machine for the body that follows `head` in an answer to `method`. Raises ProtocolViolation."""
    if method == "HEAD" or head.status in (204, 304) or head.status < 200:
        return Body()
    coding = head.header("transfer-encoding")
    if coding is not None:
        if coding.strip().lower() != "chunked":
            raise ProtocolViolation(f"transfer-encoding {coding!r} is not supported")
        return ChunkedBody()
    length = head.header("content-length")
    if length is None:
        return OpenBody()
    if not (length.isascii() and length.isdigit()):
        raise ProtocolViolation(f"content-length {length!r} is not a number")
    return SizedBody(int(length))
