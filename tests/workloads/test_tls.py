"""The load generator against https: whom it trusts, and what a stream that is cut off over TLS counts as."""

import asyncio
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from tests.workloads.test_client import DONE, FINISH, PLANNED, ROLE, TOKEN
from toolkit.core.clock import SystemClock
from toolkit.core.errors import EnvironmentFault
from toolkit.core.http.client import HttpClient
from workloads.client import ChatCaller
from workloads.prepare import Prepared
from workloads.record import LoadOutcome, LoadSample
from workloads.target import find_models

BODY = b"x" * 300_000


@pytest.fixture(scope="module")
def certificate(tmp_path_factory) -> Path:
    """A key and a certificate of its own for localhost."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command")
    folder = tmp_path_factory.mktemp("tls")
    key, both = folder / "key.pem", folder / "both.pem"
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=test"
    )
    names = "subjectAltName=IP:127.0.0.1,DNS:localhost"
    subprocess.run(
        [*command.split(), "-addext", names, "-keyout", key, "-out", both], check=True, capture_output=True
    )
    both.write_text(key.read_text() + both.read_text())
    return both


def ask(certificate: Path, pieces: list[bytes], host: str = "127.0.0.1") -> tuple[LoadSample, list[int]]:
    """One request to a server with that certificate, which streams the pieces and leaves; how much it was asked."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    received: list[int] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        received.append(len(await reader.readexactly(length)))
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        for piece in pieces:
            writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        await writer.drain()
        writer.close()

    async def main() -> LoadSample:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
        url = f"https://{host}:{server.sockets[0].getsockname()[1]}"
        client, clock = HttpClient(), SystemClock()
        ended = asyncio.get_running_loop().create_future()
        ChatCaller(client, url, clock, 10.0).begin(
            Prepared(PLANNED, (), memoryview(BODY)), clock.monotonic(), ended.set_result
        )
        try:
            return await ended
        finally:
            await client.close()
            server.close()

    return asyncio.run(main()), received


def test_before_a_run_the_remedy_is_told(certificate, monkeypatch):
    """A run ends before it begins, and says which setting names the authority."""
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    async def main() -> None:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context)
        client = HttpClient()
        try:
            await find_models(client, f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}", ())
        finally:
            await client.close()
            server.close()

    with pytest.raises(EnvironmentFault, match="SSL_CERT_FILE"):
        asyncio.run(main())


def test_a_trusted_target_is_loaded_as_any_other(certificate, monkeypatch):
    """SSL_CERT_FILE names the authority; body, tokens and times are those of a plain connection."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))

    sample, received = ask(certificate, [ROLE, TOKEN, TOKEN, FINISH, DONE, b""])

    assert (sample.outcome, sample.tokens, received) == (LoadOutcome.COMPLETED, 2, [len(BODY)])
    assert sample.first_byte_s is not None
    assert sample.first_byte_s >= sample.sent_s


def test_a_certificate_that_nobody_vouches_for_is_told(certificate, monkeypatch):
    """Nothing was sent, the record says unsent, and its message that the certificate did not verify."""
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)

    sample, received = ask(certificate, [])

    assert (sample.outcome, sample.code, received) == (LoadOutcome.UNSENT, "connect_failed", [])
    assert "certificate verify failed" in sample.message


def test_a_stream_cut_off_over_tls_is_truncated(certificate, monkeypatch):
    """The end of the connection is not the end of the answer, whatever TLS says about it."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))

    sample, _ = ask(certificate, [ROLE, TOKEN])

    assert (sample.outcome, sample.code, len(sample.token_times_s)) == (LoadOutcome.BROKEN, "truncated", 1)
