"""Valkey or Redis as a store of bytes: three calls, one fault. The only file that knows the client library."""

from typing import Protocol

CONNECTIONS = 8
CALL_S = 1.0
"""The longest that one call or one connect holds a connection; who asked has long gone on by then."""

_WRONG_TYPE = "WRONGTYPE"


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


class RedisStore:
    """A server by its URL (as AccessConfig takes it). Connects when it is first asked, and again after every fault."""

    def __init__(self, url: str) -> None:
        # A quarter of a second and 20 MB, for those who use it.
        from redis.asyncio import Redis
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff

        self._redis = Redis.from_url(
            url,
            protocol=2,
            max_connections=CONNECTIONS + 1,  # and the writer's
            socket_timeout=CALL_S,
            socket_connect_timeout=CALL_S,
            retry=Retry(NoBackoff(), 0),
        )

    async def get(self, key: bytes, most_bytes: int) -> bytes:
        try:
            # Not GET: what is there may be a gigabyte.
            found = await self._redis.getrange(key, 0, most_bytes - 1)
        except (
            Exception
        ) as error:  # the library's own slips are no more a request's business than the server's
            if str(error).startswith(_WRONG_TYPE):
                return b""
            raise StoreFault(_told(error)) from error
        return found if isinstance(found, bytes) else b""

    async def set(self, key: bytes, value: bytes, ttl_s: int) -> None:
        try:
            await self._redis.set(key, value, ex=ttl_s)
        except Exception as error:
            raise StoreFault(_told(error)) from error

    async def close(self) -> None:
        await self._redis.aclose()


def _told(error: Exception) -> str:
    """A line on the fault. The server's own words are cut short: they are not ours."""
    return f"{type(error).__name__}: {str(error)[:120]}" if str(error) else type(error).__name__
