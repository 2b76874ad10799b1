"""Requests of all kinds through the running service, with clients that hang up, ask nonsense, or have no time; and what is left.

The same kinds in virtual time, by thousands and with failing engines: tests/serving/test_accounting.py.
"""

import asyncio
import random
from collections import Counter
from typing import Any

import httpx

from tests.live.running import records
from tests.live.service import Running, wait_for
from tests.live.test_serving import data_uri
from tests.serving.access.pictures import photo, saved
from tests.serving.test_lifecycle import with_images

GIVEN_UP = "given up"
"""In the place of a status: the client left."""


def asked(source: random.Random, model: str, picture: str) -> tuple[Any, dict[str, str], float | None]:
    """A body, headers, and after how many seconds the client leaves (None: never)."""
    fields: dict[str, Any] = {
        "model": model,
        "max_tokens": source.choice((1, 4, 16)),
        "stream": source.random() < 0.6,
    }
    text = {"messages": [{"role": "user", "content": f"Say {source.randrange(10**6)}."}], **fields}
    kind = source.random()
    if kind < 0.12:
        nonsense = (b"{oops", b"[]", {**text, "model": "another"}, {**text, "max_tokens": -1},
                    {**with_images("data:image/png;base64,aGVsbG8="), "model": model})  # fmt: skip
        return source.choice(nonsense), {}, None
    if kind < 0.24:
        return text, {"x-ttft-budget-ms": str(source.randint(1, 80))}, None
    if kind < 0.40:
        return {**text, "max_tokens": 200, "ignore_eos": True}, {}, source.uniform(0.0, 0.6)
    if kind < 0.50:
        return {**with_images(picture), **fields}, {"x-slo-class": "batch"}, None
    if kind < 0.55:
        return {**text, "n": 2}, {}, None
    return text, {}, None


async def flood(running: Running, requests: int, at_once: int, seed: int) -> Counter[str]:
    """Statuses as the clients saw them."""
    source, turn, seen = random.Random(seed), asyncio.Semaphore(at_once), Counter[str]()
    picture = data_uri(saved(photo().resize((168, 112)), "JPEG"))

    async def one(body: Any, headers: dict[str, str], leaves_s: float | None) -> None:
        sent = {"content": body} if isinstance(body, bytes) else {"json": body}
        async with turn:
            try:
                async with asyncio.timeout(leaves_s):
                    answer = await client.post("/v1/chat/completions", headers=headers, **sent)
                seen[str(answer.status_code)] += 1
            except (TimeoutError, httpx.HTTPError):
                seen[GIVEN_UP] += 1

    async with httpx.AsyncClient(base_url=running.url, timeout=60) as client, asyncio.TaskGroup() as group:
        for _ in range(requests):
            group.create_task(one(*asked(source, running.service.model_name, picture)))
    return seen


def accounted(running: Running, requests: int, at_once: int, seed: int) -> Counter[str]:
    """So many requests end in so many outcomes, and nothing is held by anybody; the outcomes."""
    wait_for("an idle gateway", running.idle, 30)
    before, counted = len(records(running)), running.metric("toolkit_requests_total")
    seen = asyncio.run(flood(running, requests, at_once, seed))
    wait_for("an idle gateway", running.idle, 30)
    ended = running.metric("toolkit_requests_total") - counted

    def lines() -> list[dict[str, Any]] | None:
        mine = records(running)[before:]
        return mine if len(mine) >= ended else None

    found = wait_for("a journal line for each", lines, 10)
    outcomes = Counter(record["outcome"] for record in found)
    unseen = requests - len(found)  # who left before the head was sent was no request
    assert len(found) == ended and 0 <= unseen <= seen[GIVEN_UP]
    assert len({record["request_id"] for record in found}) == len(found)
    assert outcomes["internal_error"] == outcomes["engine_failed"] == 0
    assert all(record["attempts"] <= 3 for record in found)
    for engine in running.service.engines:
        wait_for(f"{engine.name} to be idle", lambda url=engine.url: working(running, url) == 0, 30)
    return outcomes


def working(running: Running, url: str) -> float:
    """Requests that an engine has in any of its queues."""
    queues = ("running_reqs", "queue_reqs", "prefill_bootstrap_queue_reqs", "prefill_inflight_queue_reqs",
              "decode_prealloc_queue_reqs", "decode_transfer_queue_reqs")  # fmt: skip
    return sum(running.metric(f"sglang:num_{name}", url) for name in queues)
