"""A client of a Valkey or Redis server by its URL. The only file that knows the client library, whose import takes 0.25 s and 20 MB:
import this one inside functions."""

import ssl
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.connection import ConnectionPool, SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff


class _TlsConnection(SSLConnection):
    """One TLS context for all connections: making one reads every trusted certificate, 60 ms of CPU on the loop."""

    def __init__(self, context: ssl.SSLContext, **options: Any) -> None:
        super().__init__(**options)
        self.ssl_context.context = context


def redis_client(url: str, connections: int, call_s: float) -> Redis:
    """A client that connects when it is first asked, and again after every fault. call_s: the longest that one call or one
    connect takes. Raises OSError where a file that the URL names cannot be read (ssl.SSLError is one)."""
    where: dict[str, Any] = dict(parse_url(url))
    if where.get("connection_class") is SSLConnection:
        where["connection_class"] = _TlsConnection
        where["context"] = context = ssl.create_default_context(cafile=where.pop("ssl_ca_certs", None))
        certificate, key = where.pop("ssl_certfile", None), where.pop("ssl_keyfile", None)
        if certificate is not None:
            context.load_cert_chain(certificate, key)
    pool = ConnectionPool(
        max_connections=connections,
        protocol=2,
        socket_timeout=call_s,
        socket_connect_timeout=call_s,
        retry=Retry(NoBackoff(), 0),
        driver_info=None,  # else each connection reads the installed packages' metadata, on the loop
        **where,
    )
    return Redis.from_pool(pool)


def told(error: Exception) -> str:
    """A line on a fault. The server's own words are cut short: they are not ours."""
    return f"{type(error).__name__}: {str(error)[:120]}" if str(error) else type(error).__name__
