"""A store of bytes, as the tier sees it: three calls, one fault."""

from typing import Protocol

CONNECTIONS = 4
"""Look-ups at once: each may hold an entry of the largest size, and a picture takes milliseconds."""
CALL_S = 1.0
"""The longest that one call or one connect holds a connection; who asked has long gone on by then."""


class StoreFault(Exception):
    """The store did not answer, or not as one: the message says how, without address or credentials."""


class ByteStore(Protocol):
    """Bytes by key. Used from one event loop."""

    async def get(self, key: bytes, most_bytes: int) -> bytes:
        """The value, empty where there is none or none of bytes; never more than `most_bytes` of it. Raises StoreFault."""
        ...

    async def set(self, key: bytes, value: bytes, ttl_s: int) -> None:
        """Raises StoreFault."""
        ...

    async def close(self) -> None:
        """Gives up what runs. Idempotent."""
        ...
