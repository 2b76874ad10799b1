"""How much a server may say before its answer's head has ended.

httpcore takes any number of interim answers (1xx), and parses all that one read has brought before anything else runs:
a server that sends nothing else would own the event loop until the deadline.
"""

import ssl
from typing import Any

import httpcore
import httpx

_MOST_BYTES = 32_768  # before the body; large heads have 16 kB
_READ_BYTES = 4096  # at once, about 5 ms of parsing


class HeadBound(httpcore.AsyncNetworkStream):
    """A connection that bounds what is read from each request on, until `ended` says that the body has begun."""

    def __init__(self, inner: httpcore.AsyncNetworkStream) -> None:
        self._inner = inner
        self._left: int | None = _MOST_BYTES

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._left is None:
            return await self._inner.read(max_bytes, timeout)
        data = await self._inner.read(min(max_bytes, _READ_BYTES), timeout)
        self._left -= len(data)
        if self._left < 0:
            raise httpcore.RemoteProtocolError("the head is too long")
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._left = _MOST_BYTES
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        return HeadBound(await self._inner.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)

    def ended(self) -> None:
        """What is read now is the body."""
        self._left = None


def head_ended(response: httpx.Response) -> None:
    """Tells the response's connection that its head is complete."""
    stream = response.extensions.get("network_stream")
    if isinstance(stream, HeadBound):
        stream.ended()
