"""Valkey or Redis as a ByteStore. The only file that knows the client library, whose import takes 0.25 s and 20 MB."""

import ssl
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.connection import ConnectionPool, SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from serving.access.shared.store import CALL_S, CONNECTIONS, StoreFault

_WRONG_TYPE = "WRONGTYPE"


class _TlsConnection(SSLConnection):
    """One TLS context for all connections: making one reads every trusted certificate, 60 ms of CPU on the loop."""

    def __init__(self, context: ssl.SSLContext, **options: Any) -> None:
        super().__init__(**options)
        self.ssl_context.context = context


class RedisStore:
    """A server by its URL (as AccessConfig takes it). Connects when it is first asked, and again after every fault.

    Raises OSError where a file that the URL names cannot be read (ssl.SSLError is one).
    """

    def __init__(self, url: str) -> None:
        where: dict[str, Any] = dict(parse_url(url))
        if where.get("connection_class") is SSLConnection:
            where["connection_class"] = _TlsConnection
            where["context"] = context = ssl.create_default_context(cafile=where.pop("ssl_ca_certs", None))
            certificate, key = where.pop("ssl_certfile", None), where.pop("ssl_keyfile", None)
            if certificate is not None:
                context.load_cert_chain(certificate, key)
        pool = ConnectionPool(
            max_connections=CONNECTIONS + 1,  # and the writer's
            protocol=2,
            socket_timeout=CALL_S,
            socket_connect_timeout=CALL_S,
            retry=Retry(NoBackoff(), 0),
            driver_info=None,  # else each connection reads the installed packages' metadata, on the loop
            **where,
        )
        self._redis = Redis.from_pool(pool)

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
