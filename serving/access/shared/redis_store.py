"""Valkey or Redis as a ByteStore."""

from serving.access.shared.store import CALL_S, CONNECTIONS, StoreFault
from serving.redis_client import redis_client, told

_WRONG_TYPE = "WRONGTYPE"


class RedisStore:
    """A server by its URL (as AccessConfig takes it). Connects when it is first asked, and again after every fault.

    Raises OSError where a file that the URL names cannot be read (ssl.SSLError is one).
    """

    def __init__(self, url: str) -> None:
        self._redis = redis_client(url, CONNECTIONS + 1, CALL_S)  # one of them the writer's

    async def get(self, key: bytes, most_bytes: int) -> bytes:
        try:
            # Not GET: what is there may be a gigabyte.
            found = await self._redis.getrange(key, 0, most_bytes - 1)
        except (
            Exception
        ) as error:  # the library's own slips are no more a request's business than the server's
            if str(error).startswith(_WRONG_TYPE):
                return b""
            raise StoreFault(told(error)) from error
        return found if isinstance(found, bytes) else b""

    async def set(self, key: bytes, value: bytes, ttl_s: int) -> None:
        try:
            await self._redis.set(key, value, ex=ttl_s)
        except Exception as error:
            raise StoreFault(told(error)) from error

    async def close(self) -> None:
        await self._redis.aclose()
