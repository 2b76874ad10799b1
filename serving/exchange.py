"""What request handling knows of a connection: a head, a body to pull, a way to answer, a way to learn of a hang-up.

The handler is written against this alone, so the data path can move from ASGI to raw protocols without touching it.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

Headers = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Head:
    """A request head. Header names are lower-case."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]

    def header(self, name: str) -> str | None:
        """The first value of a header, or None."""
        return next((value for key, value in self.headers if key == name), None)


class Exchange(Protocol):
    """One request and its answer."""

    @property
    def head(self) -> Head: ...

    @property
    def started(self) -> bool:
        """Whether a response head was sent: from then on an error can only be told inside the body."""
        ...

    def body(self) -> AsyncIterator[bytes]:
        """Pieces of the request body, read from the socket only as they are asked for. Raises ClientGone."""
        ...

    async def send_head(self, status: int, headers: Headers) -> None: ...

    async def send(self, chunk: bytes) -> None:
        """Send a piece of the response body; waits while the client is slow."""
        ...

    async def end(self) -> None: ...

    async def disconnected(self) -> None:
        """Return once the client has closed. Only after the body was read to its end."""
        ...
