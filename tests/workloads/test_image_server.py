"""Images by URL: the plan's bytes at the plan's addresses, and each fault as it was asked for."""

import asyncio
import io
import socket
from dataclasses import replace

import httpx
import orjson
import pytest
from PIL import Image

from toolkit.core.errors import EnvironmentFault
from toolkit.core.plan import ImageRecipe, Plan, PlannedRequest
from toolkit.core.sample import SloClass, WorkloadClass
from workloads.image_server import Served, Server, render, serving_images
from workloads.images import encode
from workloads.pictures import deliver
from workloads.prepare import prepare
from workloads.shape import ImageServer

RECIPE = ImageRecipe("natural", 96, 64, 3)


def plan_of(*images: ImageRecipe, url: str) -> Plan:
    request = PlannedRequest(7, 0.0, WorkloadClass.MULTI_IMAGE_LONG, SloClass.BATCH, "Compare.", images, 8)
    return Plan("p", 1, 1.0, (request,), images_url=url)


async def ask(
    images: dict[str, Served], *paths: str, huge_bytes: int = 3_000_000
) -> list[httpx.Response | str]:
    server = await Server(images, slow_s=0.02, huge_bytes=huge_bytes).start(0)
    port = server.sockets[0].getsockname()[1]
    found: list[httpx.Response | str] = []
    async with server, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        for path in paths:
            try:
                found.append(await client.get(path))
            except httpx.RemoteProtocolError as error:
                found.append(str(error))
    return found


def test_each_delivery_is_what_it_says():
    """ok and slow are whole; broken ends half way; huge goes on after the picture; anything else is 404."""
    deliveries = {f"/0/{n}": Served(b"x" * 5000, d) for n, d in enumerate(("ok", "slow", "broken", "huge"))}

    ok, slow, broken, huge, none = asyncio.run(ask(deliveries, *deliveries, "/0/9"))

    assert ok.content == slow.content == b"x" * 5000
    assert ok.headers["content-type"] == "image/jpeg"
    assert "peer closed connection" in broken or "incomplete" in broken
    assert huge.content.startswith(b"x" * 5000) and len(huge.content) == 3_000_000
    assert "content-length" not in huge.headers
    assert none.status_code == 404


def test_a_connection_serves_many_and_bad_heads_end_it():
    """Keep-alive; HEAD has no body, other methods are refused; an endless head is dropped."""

    async def talk() -> list[bytes]:
        server = await Server({"/0/0": Served(b"abc", "ok")}, 1.0, 10).start(0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            heads = []
            for method in ("HEAD", "POST", "HEAD"):
                writer.write(f"{method} /0/0 HTTP/1.1\r\nhost: x\r\n\r\n".encode())
                heads.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"G" * 40_000)
            heads.append(await reader.read())
            writer.close()
        return heads

    first, second, third, rest = asyncio.run(talk())
    assert b"200 OK" in first and b"content-length: 3" in first
    assert b"405" in second
    assert third == first
    assert rest == b""


def test_equal_recipes_are_made_once_and_keep_their_faults():
    """A repeated image is the same bytes under each address, whole or broken."""
    images = render(plan_of(RECIPE, replace(RECIPE, delivery="broken"), url="http://127.0.0.1:1"))

    assert images["/7/0"].data is images["/7/1"].data
    assert images["/7/0"].data == encode(RECIPE)
    assert [images[f"/7/{n}"].delivery for n in (0, 1)] == ["ok", "broken"]


def test_faults_come_in_their_shares():
    """Each image is drawn for itself."""
    import numpy as np

    rng = np.random.default_rng(1)
    faults = ImageServer(slow_share=0.2, broken_share=0.1, huge_share=0.05)
    drawn = [deliver(RECIPE, faults, rng).delivery for _ in range(4000)]

    for name, share in (("slow", 0.2), ("broken", 0.1), ("huge", 0.05), ("ok", 0.65)):
        assert drawn.count(name) / 4000 == pytest.approx(share, abs=0.025)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.slow
def test_a_run_has_its_server(tmp_path):
    """The bodies' URLs answer inside the block with the plan's pictures, and no more after it."""
    url = f"http://127.0.0.1:{free_port()}"
    plan = plan_of(RECIPE, url=url)
    path = tmp_path / "plan.json"
    path.write_bytes(plan.to_json())
    (ready,) = prepare(plan, "m", {}, 10**6)
    (asked,) = [part["image_url"]["url"] for part in orjson.loads(ready.body)["messages"][0]["content"][:-1]]

    with serving_images(plan, path, ImageServer()):
        answer = httpx.get(asked)

    assert asked == f"{url}/7/0"
    assert answer.content == encode(RECIPE)
    assert Image.open(io.BytesIO(answer.content)).size == (96, 64)
    with pytest.raises(httpx.ConnectError):
        httpx.get(asked)


@pytest.mark.slow
def test_a_taken_port_is_told(tmp_path, capfd):
    """No server, no run: the port's owner would be asked for pictures it does not have."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        plan = plan_of(RECIPE, url=f"http://127.0.0.1:{taken.getsockname()[1]}")
        path = tmp_path / "plan.json"
        path.write_bytes(plan.to_json())
        with (
            pytest.raises(EnvironmentFault, match=r"image_server\.port"),
            serving_images(plan, path, ImageServer()),
        ):
            pytest.fail("started on a port that is taken")

    assert "in use" in capfd.readouterr().err


def test_inline_images_need_no_server(tmp_path):
    """Nothing is started for a plan without URLs."""
    with serving_images(plan_of(RECIPE, url=""), tmp_path / "none.json", ImageServer()):
        pass
