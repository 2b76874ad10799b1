"""How requests end early: duplicates, aborts before and after the first token."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from tests.conformance.engines import Answer, Pair, abort, new_rid, post

SETTLE_S = 0.3
"""For what an engine does without saying so: a request that waits gives no sign of it."""
ROLES = ("prefill", "decode")
WORDS = {
    "prefill": "Prefill bootstrap failed for request rank=0",
    "decode": "Decode transfer failed for request rank=0",
}


@asynccontextmanager
async def alone(
    pair: Pair, role: str, rids: list[str], **fields: Any
) -> AsyncIterator[tuple[httpx.AsyncClient, list[asyncio.Task[Answer]]]]:
    """One leg without its other half, under each of the rids: the engine has them, and they wait."""
    async with httpx.AsyncClient(timeout=60) as client:
        url = f"{pair.url(role)}/v1/chat/completions"
        tasks = [asyncio.create_task(post(client, url, {**pair.chat(**fields), "rid": rid})) for rid in rids]
        await asyncio.sleep(SETTLE_S)
        assert not any(task.done() for task in tasks)
        try:
            yield client, tasks
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("role", ROLES)
def test_a_live_rid_is_refused(pair: Pair, role: str) -> None:
    """400 at once, and the first request goes on."""

    async def run() -> tuple[Answer, bool, Answer]:
        rid = new_rid()
        async with alone(pair, role, [rid]) as (client, (first,)):
            second = await post(client, f"{pair.url(role)}/v1/chat/completions", {**pair.chat(), "rid": rid})
            waits = not first.done()
            await abort(client, pair.url(role), rid=rid)
            return second, waits, await first

    second, waits, first = asyncio.run(run())
    assert second.status == 400 and second.json["message"].startswith("Duplicate request ID detected: conf-")
    assert second.json["type"] == "BadRequestError"
    assert waits and first.status == 500


@pytest.mark.parametrize("role", ROLES)
def test_an_abort_before_the_first_token_is_told_inside_a_200(pair: Pair, role: str) -> None:
    """Streamed: an error event, then [DONE]. Whole: a real 500."""

    async def run(stream: bool) -> Answer:
        rid = new_rid()
        async with alone(pair, role, [rid], stream=stream) as (client, (leg,)):
            answer = await abort(client, pair.url(role), rid=rid)
            assert (answer.status_code, answer.content) == (200, b"")
            return await leg

    streamed, whole = asyncio.run(run(True)), asyncio.run(run(False))
    error, done = streamed.events
    assert streamed.status == 200 and done == "[DONE]"
    assert set(error) == {"error"}
    assert set(error["error"]) == {"object", "message", "type", "param", "code"}
    assert (error["error"]["type"], error["error"]["code"]) == ("INTERNAL_SERVER_ERROR", 500)
    assert error["error"]["message"].startswith(WORDS[role])
    assert error["error"]["message"].endswith("Aborted by AbortReq.")
    assert whole.status == 500
    assert (whole.json["type"], whole.json["code"]) == ("500", 500)
    assert whole.json["message"].startswith(WORDS[role])


def test_an_abort_in_mid_answer_ends_it_with_abort(pair: Pair) -> None:
    """Streamed: a last chunk without content. Whole: a 200 with what was said so far."""

    async def run(stream: bool) -> Answer:
        body = pair.chat(max_tokens=4000, ignore_eos=True, stream=stream)
        rid, path = new_rid(), "/v1/chat/completions"
        async with httpx.AsyncClient(timeout=60) as client:
            prefill = asyncio.create_task(post(client, pair.prefill + path, {**body, "rid": new_rid()}))
            decode = asyncio.create_task(post(client, pair.decode + path, {**body, "rid": rid}))
            await prefill  # the KV cache is over there
            await asyncio.sleep(SETTLE_S)
            await abort(client, pair.decode, rid=rid)
            return await decode

    streamed, whole = asyncio.run(run(True)), asyncio.run(run(False))
    assert streamed.status == whole.status == 200
    assert streamed.events[-1] == "[DONE]"
    assert streamed.deltas[-1]["finish_reason"] == "abort"
    assert streamed.deltas[-1]["delta"] == {"reasoning_content": None}
    assert whole.json["choices"][0]["finish_reason"] == "abort"
    assert 0 < whole.json["usage"]["completion_tokens"] < 4000


def test_an_abort_takes_every_rid_that_begins_with_a_known_one(pair: Pair) -> None:
    """And none for a beginning that is no rid itself."""

    async def run() -> tuple[bool, list[Answer], bool]:
        rid = new_rid()
        async with alone(pair, "decode", [rid, f"{rid}0", f"x{rid}"]) as (client, legs):
            await abort(client, pair.decode, rid=rid[:-1])
            await asyncio.sleep(SETTLE_S)
            untouched = not any(leg.done() for leg in legs)
            await abort(client, pair.decode, rid=rid)
            ended = [await leg for leg in legs[:2]]
            other = not legs[2].done()
            await abort(client, pair.decode, rid=f"x{rid}")
            await legs[2]
            return untouched, ended, other

    untouched, ended, other = asyncio.run(run())
    assert untouched and other
    assert [leg.status for leg in ended] == [500, 500]


@pytest.mark.parametrize("body", [{"rid": "unknown"}, {"rid": ""}, {}, {"abort_all": False}])
def test_aborting_what_is_not_there_is_no_error(pair: Pair, body: dict[str, Any]) -> None:
    """200 without a body."""
    for role in ROLES:
        answer = httpx.post(f"{pair.url(role)}/abort_request", json=body, timeout=30)
        assert (answer.status_code, answer.content) == (200, b"")
