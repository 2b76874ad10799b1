"""One budget over all hops: told by hops when it ends, and refused early where it cannot be kept."""

import asyncio

import pytest

from tests.serving.rig import chat, records, rig
from tests.serving.stand_ins import FROZEN
from toolkit.core.errors import OutOfTime
from toolkit.core.sample import Timeline


def test_a_late_request_is_told_where_its_time_went(tmp_path):
    async def scenario():
        async with rig(tmp_path, prefill_0=FROZEN) as made:
            return await made.ask(headers={"x-ttft-budget-ms": "120"})

    error = asyncio.run(scenario()).json["error"]

    assert error["code"] == "ttft_budget_exceeded" and error["hop"] == "prefill"
    assert set(error["spent_ms"]) == {"body", "parse", "fetch", "prepare", "wait", "dispatch", "prefill"}
    assert max(error["spent_ms"], key=error["spent_ms"].get) == "prefill"
    assert 110 < sum(error["spent_ms"].values()) < 1000


def test_what_the_engines_cannot_make_any_more_is_refused_before_them(tmp_path):
    """The quickest first token of late took 0.5 s; with a budget of 0.3 s no hop after the body is begun."""

    async def scenario():
        async with rig(tmp_path) as made:
            parts = made.gateway.lifecycle._parts
            parts.spending._floors.took("engines", False, 0.5, parts.clock.monotonic())
            late = await made.ask(headers={"x-ttft-budget-ms": "300"})
            fine = await made.ask(headers={"x-ttft-budget-ms": "3000"})
            return late, fine, len(made.legs["decode-0"].calls)

    late, fine, calls = asyncio.run(scenario())

    assert (late.status, late.json["error"]["hop"]) == (504, "body")
    assert "take 400 ms at least" in late.json["error"]["message"]
    assert "ended" not in late.json["error"]["message"], "no hop has spent it"
    assert "well over 400" in late.json["error"]["action"]
    assert fine.status == 200
    assert calls == 1
    assert records(tmp_path)[0]["timeline"]["ended"] < 0.25


def test_images_are_fetched_no_longer_than_the_engines_leave(tmp_path, monkeypatch):
    """Of a budget of 2 s the engines take a second at least, so fetching and preparing end 0.8 of one before the budget does."""
    image = {"type": "image_url", "image_url": {"url": "http://127.0.0.1:9/a.png"}}
    given = []

    async def scenario():
        async with rig(tmp_path) as made:
            clock = made.gateway.lifecycle._parts.clock
            made.gateway.lifecycle._parts.spending._floors.took("engines", True, 1.0, clock.monotonic())

            async def slow(urls, deadline, grid=None, keep=True):
                given.append(deadline - clock.monotonic())
                raise OutOfTime("ended", hop="fetch")

            monkeypatch.setattr(made.gateway.access, "prepare", slow)
            body = {**chat(), "messages": [{"role": "user", "content": [image]}]}
            return await made.ask(body, headers={"x-ttft-budget-ms": "2000"})

    error = asyncio.run(scenario()).json["error"]

    assert 1.0 < given[0] <= 1.2
    assert error["hop"] == "fetch" and "the hops after it take 800 ms at least" in error["message"]


def test_the_floors_are_learned_from_what_is_answered(tmp_path):
    async def scenario():
        async with rig(tmp_path) as made:
            parts = made.gateway.lifecycle._parts
            before = parts.spending._floors.after_s("wait", False, parts.clock.monotonic())
            await made.ask()
            return before, parts.spending._floors.after_s("wait", False, parts.clock.monotonic())

    before, after = asyncio.run(scenario())

    assert before == 0.0 < after


@pytest.mark.parametrize("header", ["sometimes", "images,", ""])
def test_a_degradation_that_is_not_one_is_a_mistake_of_the_client(tmp_path, header):
    async def scenario():
        async with rig(tmp_path) as made:
            return await made.ask(chat(), headers={"x-toolkit-degrade": header})

    wrong = asyncio.run(scenario())

    assert (wrong.status, wrong.json["error"]["param"]) == (400, "x-toolkit-degrade")


def test_time_at_the_fallback_is_a_hop_of_its_own():
    line = Timeline(body_read=0.1, fallback=0.4, first_token=1.0, ended=1.5)

    assert {hop: round(took, 6) for hop, took in line.spent().items()} == {
        "body": 0.1,
        "dispatch": 0.3,
        "fallback": 0.6,
        "decode": 0.5,
    }
