"""https, against a certificate made for the run."""

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolkit.core.http.client import HttpClient
from toolkit.core.http.errors import ConnectFailed, Truncated

Run = Callable[[Any], None]
Serve = Callable[..., Any]


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a key and a self-signed certificate for 127.0.0.1."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command")
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=test"
    )
    extension = "subjectAltName=IP:127.0.0.1,DNS:localhost"
    subprocess.run(
        [*command.split(), "-addext", extension, "-keyout", path, "-out", path.with_suffix(".crt")],
        check=True,
        capture_output=True,
    )
    path.write_text(path.read_text() + path.with_suffix(".crt").read_text())
    return path


@pytest.fixture
def server_context(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


async def always_ok(wire: Any) -> None:
    while True:
        await wire.request()
        wire.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")


def test_requests_over_tls(run: Run, serve: Serve, server_context: ssl.SSLContext, certificate: Path) -> None:
    """A trusted certificate: same behaviour as without TLS, keep-alive included."""
    trust = ssl.create_default_context(cafile=str(certificate))

    async def main() -> None:
        async with serve(always_ok, tls=server_context) as peer:
            client = HttpClient(tls=trust)
            for _ in range(3):
                assert await (await client.send("POST", peer.url, body=b"x" * 300_000)).read() == b"ok"
            assert (len(peer.wires), client.idle_connections) == (1, 1)
            await client.close()

    run(main())


def test_an_untrusted_certificate_is_refused(run: Run, serve: Serve, server_context: ssl.SSLContext) -> None:
    """The default context verifies."""

    async def main() -> None:
        async with serve(always_ok, tls=server_context) as peer:
            client = HttpClient()
            with pytest.raises(ConnectFailed, match="certificate"):
                await client.send("GET", peer.url)
            assert client.open_connections == 0
            await client.close()

    run(main())


def test_truncation_over_tls(
    run: Run, serve: Serve, server_context: ssl.SSLContext, certificate: Path
) -> None:
    """A framed body that ends early is told, with and without a TLS goodbye."""
    trust = ssl.create_default_context(cafile=str(certificate))

    async def main() -> None:
        for polite in (True, False):

            async def handler(wire: Any, polite: bool = polite) -> None:
                await wire.request()
                wire.write(b"HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\npart")
                await wire.writer.drain()
                if not polite:
                    wire.writer.transport.abort()

            async with serve(handler, tls=server_context) as peer:
                client = HttpClient(tls=trust)
                response = await client.send("GET", peer.url)
                with pytest.raises(Truncated):
                    await response.read()
                assert client.open_connections == 0
                await client.close()

    run(main())


@pytest.mark.parametrize("how", ["timeout", "cancel"])
def test_a_peer_that_never_shakes_hands(run: Run, serve: Serve, how: str) -> None:
    """Connecting ends by its own limit or by the caller's cancel; nothing is left."""

    async def silent(wire: Any) -> None:
        await wire.gone()

    async def main() -> None:
        async with serve(silent) as peer:
            client = HttpClient(connect_timeout_s=0.05 if how == "timeout" else 60.0)
            task = asyncio.create_task(client.send("GET", peer.url.replace("http:", "https:")))
            if how == "timeout":
                with pytest.raises(ConnectFailed, match=r"within 0\.05 s"):
                    await task
            else:
                while not peer.wires:
                    await asyncio.sleep(0.001)
                assert client.open_connections == 1
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert client.open_connections == 0
            while peer.tasks:
                await asyncio.sleep(0.001)
            await client.close()

    run(main())
