"""What is odd about the engine, or new in what the toolkit relies on: priorities, broken images, stale loads, legs alone."""

import asyncio
import base64
import io
from typing import Any

import httpx
import pytest
from PIL import Image

from tests.conformance.engines import Answer, Pair, abort, new_rid, post
from tests.live.service import PHOTOS, wait_for
from tests.serving.access import pictures

CHAT = "/v1/chat/completions"
LEGS = ("prefill", "decode")
FAKE = {"bootstrap_host": "2.2.2.2"}
SETTLE_S = 0.5
CHINA = (PHOTOS / "china.jpg").read_bytes()


def uri(data: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(data).decode()


def showing(url: str) -> list[dict[str, Any]]:
    parts = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": url}}]
    return [{"role": "user", "content": parts}]


def half(kind: str) -> bytes:
    out = io.BytesIO()
    Image.open(io.BytesIO(CHINA)).save(out, kind)
    data = out.getvalue()
    return data[: len(data) // 2]


@pytest.mark.parametrize("priority", [0, 7, -3])
def test_a_priority_is_taken(pair: Pair, priority: int) -> None:
    """In the body; without --enable-priority-scheduling it changes nothing."""
    assert [leg.status for leg in pair.ask(priority=priority, max_tokens=1)] == [200, 200]


def test_a_priority_is_taken_from_a_header(pair: Pair) -> None:
    """x-override-priority, whatever it holds: it is looked at only where header overrides are switched on."""
    for value in ("5", "high"):
        for role in LEGS:
            answer = httpx.post(
                pair.url(role) + CHAT,
                json={**pair.chat(**FAKE, max_tokens=1), "rid": new_rid()},
                headers={"x-override-priority": value},
                timeout=30,
            )
            assert answer.status_code == 200


def test_a_priority_that_is_no_number_is_refused(pair: Pair) -> None:
    """By the schema."""
    for leg in pair.ask(priority="high"):
        assert (leg.status, leg.json["type"]) == (400, "Bad Request")
        assert leg.json["message"].startswith(
            "1 validation error:\n  {'type': 'int_parsing', 'loc': ('body', 'priority')"
        )


GATE = {
    "half a JPEG": uri(half("JPEG")),
    "half a PNG": uri(half("PNG")),
    "half a WebP": uri(half("WEBP")),
    "a page of HTML": uri(b"<html></html>" * 40),
    "no base64": "data:image/png;base64,@@@@",
    "nobody there": "http://127.0.0.1:9/x.png",
}


@pytest.mark.parametrize("what", GATE)
def test_an_image_that_cannot_be_read_is_400(pair: Pair, what: str) -> None:
    """Decoded to its end before anything is computed; both legs say so in the same words."""
    for leg in pair.ask(messages=showing(GATE[what]), max_tokens=1):
        assert (leg.status, leg.json["type"]) == (400, "BadRequestError")
        assert leg.json["message"].startswith(
            "An exception occurred while loading IMAGE data at index 0: Error while"
        )


def test_an_image_that_pillow_calls_a_bomb_is_500(pair: Pair) -> None:
    """It is none of SGLang's client errors, so routers try it again elsewhere."""
    bomb = pictures.png(20_000, 20_000, 1, 0, b"")
    for leg in pair.ask(messages=showing(uri(bomb)), max_tokens=1):
        assert (leg.status, leg.json["type"]) == (500, "InternalServerError")


@pytest.mark.parametrize("role", LEGS)
def test_a_leg_without_a_peer_by_the_fake_host(pair: Pair, role: str) -> None:
    """2.2.2.2 is SGLang's own name for nobody: each leg answers alone."""
    body = {**pair.chat(**FAKE, max_tokens=3, ignore_eos=True), "rid": new_rid()}
    answer = httpx.post(pair.url(role) + CHAT, json=body, timeout=30).json()

    assert answer["usage"]["completion_tokens"] == (1 if role == "prefill" else 3)


def test_room_zero_never_arrives_at_decode(pair: Pair) -> None:
    """Prefill answers, decode waits until it is aborted."""

    async def run() -> tuple[int, bool, Answer]:
        body, rid = pair.chat(bootstrap_room=0), new_rid()
        async with httpx.AsyncClient(timeout=60) as client:
            decode = asyncio.create_task(post(client, pair.decode + CHAT, {**body, "rid": rid}))
            prefill = await post(client, pair.prefill + CHAT, {**body, "rid": new_rid()})
            await asyncio.sleep(SETTLE_S)
            waits = not decode.done()
            await abort(client, pair.decode, rid=rid)
            return prefill.status, waits, await decode

    status, waits, decode = asyncio.run(run())
    assert (status, waits, decode.status) == (200, True, 500)


def test_an_abort_misses_a_request_that_came_while_the_engine_is_paused(pair: Pair) -> None:
    """It is held back from the scheduler, which so knows nothing to abort: once the engine goes on, both legs answer in full."""

    async def run() -> tuple[bool, list[Answer]]:
        body, rid = pair.chat(), new_rid()
        async with httpx.AsyncClient(timeout=90) as client:
            await client.post(f"{pair.prefill}/pause_generation", json={"mode": "in_place"})
            try:
                legs = [
                    asyncio.create_task(post(client, pair.prefill + CHAT, {**body, "rid": rid})),
                    asyncio.create_task(post(client, pair.decode + CHAT, {**body, "rid": new_rid()})),
                ]
                await asyncio.sleep(SETTLE_S)
                await abort(client, pair.prefill, rid=rid)
                waits = not any(leg.done() for leg in legs)
            finally:
                await client.post(f"{pair.prefill}/continue_generation", json={})
            return waits, await asyncio.gather(*legs)

    waits, (prefill, decode) = asyncio.run(run())
    assert waits and (prefill.status, decode.status) == (200, 200)
    assert [leg.json["choices"][0]["finish_reason"] for leg in (prefill, decode)] == ["length", "length"]


def test_loads_are_stale_while_decode_runs_and_fresh_when_it_is_idle(pair: Pair) -> None:
    """One snapshot in fifteen steps; at the end at once."""
    tokens = 300

    async def run() -> tuple[list[tuple[float, int]], Answer]:
        looks: list[tuple[float, int]] = []
        body = {**pair.chat(**FAKE, max_tokens=tokens, ignore_eos=True), "rid": new_rid()}
        async with httpx.AsyncClient(timeout=60) as client:
            leg = asyncio.create_task(post(client, pair.decode + CHAT, body))
            while not leg.done():
                (load,) = (await client.get(f"{pair.decode}/v1/loads")).json()["loads"]
                looks.append((load["timestamp"], load["num_running_reqs"]))
                await asyncio.sleep(0.002)
            return looks, await leg

    looks, answer = asyncio.run(run())
    busy = {at for at, running in looks if running}
    assert answer.json["usage"]["completion_tokens"] == tokens
    assert 0 < len(busy) <= tokens / 15 + 2

    def idle() -> bool:
        (load,) = pair.get("decode", "/v1/loads").json()["loads"]
        return bool(load["num_running_reqs"] == 0 and load["num_used_tokens"] == 0)

    wait_for("an idle snapshot", idle, 5)
