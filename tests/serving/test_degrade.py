"""Giving something up in a whole gateway, and how the client is told."""

import asyncio
import contextlib

import pytest

from serving.schedule.lease import Need
from tests.serving.rig import chat, records, rig
from tests.serving.test_leases import picture
from toolkit.core.sample import SloClass, WorkloadClass

BUSY = {"schedule": {"max_in_flight": 2, "adaptive": False}}


@contextlib.contextmanager
def busy(made, per_token_s=0.01):
    """One of two slots is held by somebody, and prompts of 20 and 220 tokens took per_token_s a token."""
    admission, now = made.gateway.admission, made.gateway.lifecycle._parts.clock.monotonic()
    for number in range(200):
        prompt = 220 if number % 2 else 20
        admission._late.learned.first_token(True, prompt * per_token_s, now, prompt)
    admission._late.learned.left(True, 0.01, now)
    admission.arrive("ghost", SloClass.BATCH, now, now + 60)
    admission.prepared("ghost", WorkloadClass.TEXT_ONLY, 10, now, Need(10, 1, 5))
    try:
        yield
    finally:
        admission.leave("ghost", now)


def asked(side=448):
    content = [
        {"type": "text", "text": "what?"},
        {"type": "image_url", "image_url": {"url": picture(side, side)}},
    ]
    return {**chat(max_tokens=32), "messages": [{"role": "user", "content": content}]}


@pytest.mark.parametrize("header", [None, "images", "never", "max_tokens"])
def test_images_are_made_smaller_where_the_first_token_would_come_too_late(tmp_path, header):
    """Reckoned 1.4 s for the whole picture and 1.2 s left: a smaller one is in time, where the client bears it."""

    async def scenario():
        async with rig(tmp_path, {**BUSY, "standard": {"degrade": True}}) as made:
            with busy(made):
                headers = {"x-ttft-budget-ms": "1200", **({"x-toolkit-degrade": header} if header else {})}
                return await made.ask(asked(), headers=headers)

    answer = asyncio.run(scenario())
    record = records(tmp_path)[0]

    if header in (None, "images"):
        assert answer.status == 200
        told = record["degraded"]
        assert [(one["kind"], one["why"]) for one in told] == [("images", "late")]
        assert told[0]["after"] <= 0.75 * told[0]["before"]
        assert answer.headers["x-toolkit-degraded"] == (
            f"images;from={told[0]['before']};to={told[0]['after']};why=late"
        )
    else:
        assert (answer.status, answer.json["error"]["code"]) == (429, "queue_too_long")
        assert record["degraded"] == []


def test_by_default_nothing_is_given_up(tmp_path):
    async def scenario():
        async with rig(tmp_path, BUSY) as made:
            with busy(made):
                return await made.ask(asked(), headers={"x-ttft-budget-ms": "1200"})

    assert asyncio.run(scenario()).json["error"]["code"] == "queue_too_long"


@pytest.mark.parametrize("borne", [True, False])
def test_max_tokens_is_lowered_to_fit_the_share_of_the_pool(tmp_path, borne):
    """Within the floor, and what the engines get is what the client is told."""

    async def scenario():
        async with rig(tmp_path, {"standard": {"degrade_max_tokens": 64}}) as made:
            headers = {} if borne else {"x-toolkit-degrade": "never"}
            answer = await made.ask(chat(max_completion_tokens=9000), headers=headers)
            return answer, [call.body for call in made.legs["decode-0"].calls]

    answer, bodies = asyncio.run(scenario())

    if not borne:
        assert (answer.status, bodies) == (413, [])
        return
    lowered = int(answer.headers["x-max-tokens"])
    assert 64 <= lowered < 9000
    assert answer.headers["x-toolkit-degraded"] == f"max_tokens;from=9000;to={lowered};why=lease"
    assert bodies[0]["max_tokens"] == lowered and "max_completion_tokens" not in bodies[0]


def test_a_client_s_least_tokens_are_kept(tmp_path):
    async def scenario():
        async with rig(tmp_path, {"standard": {"degrade_max_tokens": 64}}) as made:
            return await made.ask(chat(max_tokens=9000, min_tokens=8000))

    assert asyncio.run(scenario()).status == 413
