"""One answer, from bytes in any cut: interim heads skipped, the head parsed, the payload given. Pure."""

from toolkit.core.http.body import Body, body_of
from toolkit.core.http.errors import ConnectionLost, ProtocolViolation
from toolkit.core.http.head import MAX_HEAD_BYTES, Head, parse_head


class AnswerParser:
    """Fed what arrives. `head` and `body` appear together, when the final head is complete."""

    __slots__ = ("_held", "_method", "_seen_bytes", "body", "head")

    def __init__(self, method: str) -> None:
        self._method = method
        self._held = b""
        self._seen_bytes = 0  # of interim heads
        self.head: Head | None = None
        self.body: Body | None = None

    @property
    def untouched(self) -> bool:
        """No byte of an answer was seen."""
        return self.head is None and not self._held and not self._seen_bytes

    @property
    def done(self) -> bool:
        return self.body is not None and self.body.done

    @property
    def reusable(self) -> bool:
        """The answer ended where its framing says, nothing followed, and the peer keeps the connection."""
        return (
            self.head is not None
            and self.head.keep_alive
            and self.done
            and not (self.body and self.body.rest)
        )

    def feed(self, data: bytes) -> bytes:
        """The body's payload inside `data`. Raises ProtocolViolation."""
        if self.body is None:
            data = self._take_heads(data)
            if self.body is None:
                return b""
        return self.body.feed(data)

    def eof(self) -> None:
        """The peer closed. Raises ConnectionLost or Truncated when the answer was not complete."""
        if self.body is None:
            what = "before any byte" if self.untouched else "inside the head"
            raise ConnectionLost(f"the peer closed {what} of the answer")
        self.body.eof()

    def _take_heads(self, data: bytes) -> bytes:
        searched = max(0, len(self._held) - 3)
        data = self._held + data
        self._held = b""
        while True:
            if not data.startswith(b"HTTP/1."[: len(data)]):
                raise ProtocolViolation(f"the answer does not begin like HTTP/1.x: {data[:20]!r}")
            end = data.find(b"\r\n\r\n", searched, MAX_HEAD_BYTES - self._seen_bytes)
            if end < 0:
                if len(data) + self._seen_bytes >= MAX_HEAD_BYTES:
                    raise ProtocolViolation(f"the head of the answer passes {MAX_HEAD_BYTES} bytes")
                if data.find(b"\n\n", searched) >= 0:
                    raise ProtocolViolation("the head of the answer ends its lines without a carriage return")
                self._held = data
                return b""
            end += 4
            head = parse_head(data[:end])
            data = data[end:]
            if head.status >= 200:
                self.head, self.body = head, body_of(self._method, head)
                return data
            if head.status == 101:
                raise ProtocolViolation("the peer switched protocols, which was not asked for")
            self._seen_bytes += end
            searched = 0
