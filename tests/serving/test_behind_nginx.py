"""docs/deploy/nginx.conf in a real nginx, before two real gateways."""

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

import pytest

from serving.topology import ROOT
from tests.serving.gateways import (
    Answer,
    GatewayHere,
    GatewayProcess,
    body,
    eventually,
    free_ports,
    gateways,
    get,
)
from tests.serving.rig import until
from tests.serving.stand_ins import FROZEN, stand_ins, wire
from toolkit.core.http.client import HttpClient
from toolkit.core.http.errors import TransportError

NGINX = Path(sys.prefix) / "nginx" / "nginx"
EXAMPLE = ROOT / "docs" / "deploy" / "nginx.conf"
PATIENT = ("x-ttft-budget-ms", "60000")
TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")

pytestmark = pytest.mark.skipif(not NGINX.exists(), reason="scripts/nginx.sh found no nginx on this machine")


@contextlib.asynccontextmanager
async def nginx(folder: Path, ports: list[int]):
    """The example's file with other ports, below a main file that keeps everything in the folder."""
    front = free_ports(1)[0]
    text = EXAMPLE.read_text()
    for written, port in (("8080", front), ("8000", ports[0]), ("8001", ports[1])):
        assert f"127.0.0.1:{written}" in text
        text = text.replace(f"127.0.0.1:{written}", f"127.0.0.1:{port}")
    paths = "\n".join(f"{name}_temp_path {folder}/{name};" for name in TEMPORARY)
    user = "user root;" if os.geteuid() == 0 else ""
    (folder / "site.conf").write_text(text)
    (folder / "main.conf").write_text(
        f"{user} daemon off; worker_processes 2; pid {folder}/pid; error_log {folder}/error.log;\n"
        f"events {{}}\nhttp {{ access_log off; {paths}\ninclude {folder}/site.conf; }}\n"
    )
    process = await asyncio.create_subprocess_exec(
        str(NGINX), "-p", str(folder), "-c", str(folder / "main.conf"), "-e", str(folder / "error.log")
    )
    try:

        async def answers():
            assert process.returncode is None, (folder / "error.log").read_text()
            return await get(f"http://127.0.0.1:{front}/readyz") == 200

        await eventually(answers)
        yield f"http://127.0.0.1:{front}"
    finally:
        process.send_signal(signal.SIGTERM)
        await process.wait()


class Client:
    """Posts through nginx; never sends anything again by itself."""

    def __init__(self, url):
        self._url = url
        self._client = HttpClient(connect_timeout_s=30)

    async def begin(self, stream=True, content=None):
        headers = [("content-type", "application/json"), PATIENT]
        content = body(stream) if content is None else content
        return await self._client.send("POST", f"{self._url}/v1/chat/completions", headers, content)

    async def ask(self, stream=True, content=None):
        response = await self.begin(stream, content)
        return Answer(response.status, (await response.read()).decode())

    async def close(self):
        await self._client.close()


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(GatewayHere, marks=pytest.mark.slow),
        pytest.param(GatewayProcess, marks=pytest.mark.proof),
    ],
)
def test_a_gateway_that_dies_or_stops_behind_nginx(tmp_path, kind):
    """Streams pass as they come; what was not begun is answered by the other gateway; what was begun is not sent
    again. What the one that died was told by its operator holds when it is back."""

    async def scenario():
        async with (
            stand_ins(prefill_0={}, decode_0={}) as legs,
            gateways(kind, tmp_path, legs) as made,
            nginx(tmp_path, [one.port for one in made]) as url,
        ):
            client, decode = Client(url), legs["decode-0"]

            # A token is there while the next one is not: nothing is held back.
            decode.set(**wire("silence", 2))
            begun = await client.begin()
            assert b"data:" in (await anext(begun.chunks()))[0]
            dies, stays = made if await open_on(made[0]) else reversed(made)

            # kill -9 beside four requests that nobody has begun to answer, on either gateway.
            decode.set(**FROZEN)
            waiting = [asyncio.create_task(client.ask(stream)) for stream in (True, False, True, False)]
            await until(lambda: asked(decode) == 5, 15)
            there = await open_on(dies)
            await dies.set(**{"batch.weight": 0.5})
            await dies.end(signal.SIGKILL)
            await until(lambda: asked(decode) == 5 + there - 1, 15)
            decode.set()
            answers = await asyncio.gather(*waiting)
            assert 1 < there < 5, "both have some"
            assert [one for one in answers if not one.whole] == []

            # The stream that had begun ends, not whole, and nobody was asked for it again.
            with contextlib.suppress(TransportError):
                assert b"[DONE]" not in await begun.read()
            assert asked(decode) == 5 + there - 1

            # With one gateway gone every request is answered, large bodies too.
            for content in (body(True), body(False), body(True, user="x" * 3_000_000)):
                assert (await client.ask(content=content)).whole

            # A gateway that stops says 503, and the other one answers; what it has, it ends.
            await dies.start()
            assert (await dies.admin("GET", "/state"))["settings"]["batch.weight"] == 0.5
            decode.set(**FROZEN)
            held = [asyncio.create_task(client.ask()) for _ in range(2)]
            before = asked(decode)
            await until(lambda: asked(decode) == before + 2, 15)
            ending = asyncio.create_task(stays.end())
            await eventually(lambda: said_503(stays.url))
            decode.set()
            answers = await asyncio.gather(*held, *(client.ask() for _ in range(8)))
            assert [one for one in answers if not one.whole] == []
            assert await ending == 0

            # Nobody is left: a typed 503 with a time to come back.
            await dies.end(signal.SIGKILL)
            nobody = await client.begin()
            assert (nobody.status, nobody.header("retry-after")) == (503, "2")
            assert b"engine_unavailable" in await nobody.read()
            await client.close()

    asyncio.run(scenario())


def asked(leg):
    """Requests of clients, without the probers' images."""
    return sum(isinstance(seen.body["messages"][0]["content"], str) for seen in leg.calls)


async def open_on(gateway):
    state = await gateway.admin("GET", "/state")
    return state["gateway"]["open_requests"]


async def said_503(url):
    return await get(f"{url}/readyz") == 503
