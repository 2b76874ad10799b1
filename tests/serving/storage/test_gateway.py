"""What a gateway stores of its requests: only what the configuration says, and never before or instead of an answer."""

import asyncio
import base64
import hashlib
from pathlib import Path
from typing import Any

import orjson
import pytest
from obstore.store import LocalStore

from serving.service import OWN_HEADER
from tests.serving.access import pictures
from tests.serving.rig import OWN_KEY, Rig, chat, rig
from tests.serving.stand_ins import wire
from tests.serving.storage.kept import body, image_key, keys

PNG, JPEG = pictures.saved(pictures.arrow(), "PNG"), pictures.saved(pictures.photo(), "JPEG")
REFUSED = b"\x89PNG\r\n\x1a\n" + b"no picture"


def about(*files: bytes, stream: bool = True) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"type": "text", "text": "what is it?"}]
    for data in files:
        uri = f"data:image/png;base64,{base64.b64encode(data).decode()}"
        parts.append({"type": "image_url", "image_url": {"url": uri}})
    return chat(stream, messages=[{"role": "user", "content": parts}])


def settings(tmp_path: Path, **fields: Any) -> dict[str, Any]:
    return {
        "storage": {
            "url": f"file://{tmp_path}/store",
            "spool_dir": str(tmp_path / "spool"),
            "drain_timeout_s": 20,
            **fields,
        }
    }


def key_of(data: bytes) -> str:
    return image_key(hashlib.sha256(data).digest())


def results(tmp_path: Path) -> list[dict[str, Any]]:
    store = LocalStore(tmp_path / "store")
    return [orjson.loads(body(store, key)) for key in keys(store) if key.startswith("results/")]


def test_images_are_stored_once_as_received_and_refused_ones_never(tmp_path: Path) -> None:
    async def run() -> None:
        async with rig(tmp_path, settings(tmp_path, images=True)) as made:
            assert (await made.ask(about(PNG, JPEG))).status == 200
            assert (await made.ask(about(JPEG))).status == 200
            assert (await made.ask(about(REFUSED))).status == 400

        store = LocalStore(tmp_path / "store")
        assert keys(store) == sorted([key_of(PNG), key_of(JPEG)])
        assert body(store, key_of(PNG)) == PNG
        assert body(store, key_of(JPEG)) == JPEG
        assert made.metric("toolkit_storage_uploads_total", kind="image", result="uploaded") == 2

    asyncio.run(run())


@pytest.mark.parametrize("stream", [True, False])
def test_a_result_is_request_answer_and_sample(tmp_path: Path, stream: bool) -> None:
    async def run() -> None:
        async with rig(tmp_path, settings(tmp_path, results=True)) as made:
            exchange = await made.ask(about(PNG, stream=stream))
            said = made.legs["decode-0"].calls[0].said

        (result,) = results(tmp_path)
        assert result["request_id"] == exchange.headers["x-request-id"]
        image = result["request"]["messages"][0]["content"][1]["image_url"]["url"]
        assert image == f"sha256:{hashlib.sha256(PNG).hexdigest()}"
        assert result["answer"]["choices"][0]["message"]["content"] == said
        assert result["sample"]["outcome"] == "completed"
        assert keys(LocalStore(tmp_path / "store"))[0].startswith("results/")

    asyncio.run(run())


def test_only_answered_requests_have_a_result_and_broken_answers_say_so(tmp_path: Path) -> None:
    async def run() -> None:
        broken = wire("reset", after_events=2)
        async with rig(tmp_path, settings(tmp_path, results=True), decode_0=broken) as made:
            await made.ask(b"no json")
            await made.ask(about(REFUSED))
            await made.ask(about(PNG))

        (result,) = results(tmp_path)
        assert result["sample"]["outcome"] == "engine_failed"

    asyncio.run(run())


def test_nothing_is_stored_or_collected_by_default(tmp_path: Path) -> None:
    async def run() -> None:
        async with rig(tmp_path / "runs") as made:
            assert made.gateway.storage is None
            assert (await made.ask(about(PNG))).status == 200

        assert [path.name for path in (tmp_path / "runs").iterdir()] == ["journal"]

    (tmp_path / "runs").mkdir()
    asyncio.run(run())


def test_the_launchers_own_first_question_is_nobodys_and_is_not_stored(tmp_path: Path) -> None:
    """Who does not know the key of this start is a user, whatever the header says; the same photo from a user is stored."""

    async def run() -> None:
        async with rig(tmp_path, settings(tmp_path, images=True, results=True)) as made:
            assert (await made.ask(about(PNG), headers={OWN_HEADER: OWN_KEY})).status == 200
            assert made.gateway.storage is not None
            assert (made.gateway.storage.left, made.gateway.access.held_images) == (0, 0)
            assert (await made.ask(about(JPEG), headers={OWN_HEADER: "guessed"})).status == 200
            assert (await made.ask(about(PNG))).status == 200

        stored = keys(LocalStore(tmp_path / "store"))
        assert {key_of(PNG), key_of(JPEG)} <= set(stored)
        assert len(results(tmp_path)) == 2

    asyncio.run(run())


def test_a_store_that_is_away_costs_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        away = settings(
            tmp_path,
            url="s3://b",
            endpoint="http://127.0.0.1:1",
            images=True,
            results=True,
            drain_timeout_s=0,
        )
        async with rig(tmp_path, away) as made:
            assert [(await made.ask(about(PNG))).status for _ in range(3)] == [200, 200, 200]
            assert made.gateway.storage is not None
            made.gateway.status.metrics()
            assert metric(made, "spool_entries") == 4

        assert len(list((tmp_path / "spool").glob("*/*/*.*"))) == 4

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    asyncio.run(run())


def test_readyz_tells_of_stores_that_requests_go_on_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Known before the first request asks for one; their failing makes nothing unready."""

    async def told(storage: dict[str, Any], shared: str) -> tuple[int, dict[str, str]]:
        chosen = {**storage, "access": {"shared_cache_url": shared}}
        async with rig(tmp_path, chosen) as made:
            async with asyncio.timeout(20):
                while "unknown" in made.gateway.status.stores().values():
                    await asyncio.sleep(0.005)
            status, _, body = made.gateway.status.ready()
            return status, orjson.loads(body)["stores"]

    away = settings(tmp_path, url="s3://b", endpoint="http://127.0.0.1:1", images=True, drain_timeout_s=0)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")

    status, stores = asyncio.run(told(away, "redis://127.0.0.1:1/0"))
    assert status == 200
    assert {name: how.partition(":")[0] for name, how in stores.items()} == {
        "object store": "fails",
        "shared cache": "fails",
    }
    status, stores = asyncio.run(told(settings(tmp_path, images=True), ""))
    assert (status, stores) == (200, {"object store": "works"})


def metric(made: Rig, name: str) -> float | None:
    return made.metric(f"toolkit_storage_{name}")
