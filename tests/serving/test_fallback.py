"""The fallback endpoint answers what no pair can: the real gateway, stand-in engines, and a stand-in for the endpoint."""

import asyncio
import random
from dataclasses import replace

import orjson
import pytest

from serving.chat import parse
from serving.config import ServeConfig
from serving.fallback import original
from serving.fallback_config import FallbackConfig
from tests.serving.fake_exchange import FakeExchange
from tests.serving.rig import chat, records, rig, until
from tests.serving.stand_ins import FROZEN, INSTANT, stand_ins
from toolkit.core.errors import InvalidRequest, UsageFault

PHOTO = "data:image/png;base64," + "QUJD" * 30_000


def settings(leg, **fallback):
    return {"fallback": {"url": f"{leg.stand_in.url}/v1", **fallback}}


def test_a_service_without_a_ready_pair_hands_the_client_s_own_request_on(tmp_path):
    async def scenario():
        async with (
            stand_ins(unified_0={}) as elsewhere,
            rig(tmp_path, settings(elsewhere["unified-0"], model="big")) as made,
        ):
            made.gateway.book.engine_seen("decode-0", up=False)
            asked = await made.ask(chat(user="me", temperature=0.5))
            whole = await made.ask(chat(stream=False))
            answered = made.metric("toolkit_fallback_requests_total", result="answered")
            counted = made.metric(
                "toolkit_degraded_total", kind="fallback", why="engine_unavailable", slo_class="standard"
            )
            return asked, whole, elsewhere["unified-0"].calls, answered, counted

    asked, whole, calls, answered, counted = asyncio.run(scenario())

    assert asked.status == 200 and asked.text.rstrip().endswith("data: [DONE]")
    assert asked.headers["x-toolkit-degraded"] == "fallback;why=engine_unavailable"
    assert asked.headers["x-served-by"] == "fallback"
    assert whole.status == 200 and whole.json["choices"][0]["finish_reason"]
    assert calls[0].body == {**chat(user="me", temperature=0.5), "model": "big"}
    assert (answered, counted) == (2, 2)
    record = records(tmp_path)[0]
    assert record["outcome"] == "completed"
    assert record["degraded"] == [
        {"kind": "fallback", "why": "engine_unavailable", "before": None, "after": None}
    ]
    assert record["timeline"]["fallback"] <= record["timeline"]["first_token"]


@pytest.mark.parametrize("header", ["never", "images, max_tokens"])
def test_a_client_that_forbids_it_gets_the_error(tmp_path, header):
    async def scenario():
        async with (
            stand_ins(unified_0={}) as elsewhere,
            rig(tmp_path, settings(elsewhere["unified-0"])) as made,
        ):
            made.gateway.book.engine_seen("decode-0", up=False)
            return await made.ask(headers={"x-toolkit-degrade": header}), elsewhere["unified-0"].calls

    refused, calls = asyncio.run(scenario())

    assert (refused.status, refused.json["error"]["code"]) == (503, "engine_unavailable")
    assert calls == []


def test_batch_waits_instead_unless_the_operator_says_otherwise(tmp_path):
    async def scenario():
        async with (
            stand_ins(unified_0={}) as elsewhere,
            rig(tmp_path, settings(elsewhere["unified-0"])) as made,
        ):
            made.gateway.book.engine_seen("decode-0", up=False)
            return await made.ask(headers={"x-slo-class": "batch"})

    assert asyncio.run(scenario()).status == 503
    assert ServeConfig().batch.fallback is False and ServeConfig().standard.fallback is True


def test_who_is_turned_away_at_the_door_is_answered_too(tmp_path):
    """No seat is left: the body, unread until then, is read for the fallback endpoint alone."""

    async def scenario():
        async with (
            stand_ins(unified_0={}) as elsewhere,
            rig(
                tmp_path,
                {**settings(elsewhere["unified-0"]), "schedule": {"max_in_flight": 1, "max_waiting": 1}},
                decode_0=FROZEN,
            ) as made,
        ):
            decode = made.legs["decode-0"]
            holder, waiter = FakeExchange(chat()), FakeExchange(chat())
            tasks = [asyncio.create_task(made.gateway.api.handle(holder))]
            await until(lambda: decode.calls)
            tasks.append(asyncio.create_task(made.gateway.api.handle(waiter)))
            await until(lambda: made.gateway.admission.queued == 1)
            third = await made.ask(chat(user="third"))
            holder.hang_up()
            waiter.hang_up()
            await asyncio.gather(*tasks)
            return third, elsewhere["unified-0"].calls

    third, calls = asyncio.run(scenario())

    assert third.status == 200 and third.headers["x-toolkit-degraded"] == "fallback;why=queue_full"
    assert [call.body["user"] for call in calls] == ["third"]


def test_waiting_ends_while_the_fallback_can_still_be_in_time(tmp_path):
    """The endpoint usually takes 0.7 s, so of a budget of 1 s only 0.3 s are waited for a slot."""

    async def scenario():
        async with (
            stand_ins(unified_0={}) as elsewhere,
            rig(
                tmp_path,
                {**settings(elsewhere["unified-0"]), "schedule": {"max_in_flight": 1}},
                decode_0=FROZEN,
            ) as made,
        ):
            made.gateway.fallback._first.add(0.7, made.gateway.lifecycle._parts.clock.monotonic())
            holder = FakeExchange(chat(), headers={"x-toolkit-degrade": "never"})
            task = asyncio.create_task(made.gateway.api.handle(holder))
            await until(lambda: made.legs["decode-0"].calls)
            served = await made.ask(headers={"x-ttft-budget-ms": "1000"})
            holder.hang_up()
            await task
            return served

    served = asyncio.run(scenario())

    assert (
        served.status == 200 and served.headers["x-toolkit-degraded"] == "fallback;why=ttft_budget_exceeded"
    )
    spent = next(record for record in records(tmp_path) if record["degraded"])["timeline"]
    assert 0.2 < spent["fallback"] < spent["first_token"] < 1.0


def test_where_the_fallback_is_late_too_its_hop_is_named(tmp_path):
    async def scenario():
        async with (
            stand_ins(unified_0=FROZEN) as elsewhere,
            rig(tmp_path, settings(elsewhere["unified-0"])) as made,
        ):
            made.gateway.book.engine_seen("decode-0", up=False)
            late = await made.ask(headers={"x-ttft-budget-ms": "200"})
            again = await made.ask(headers={"x-ttft-budget-ms": "150"})
            metric = made.metric
            return (
                late,
                again,
                [metric("toolkit_fallback_requests_total", result=result) for result in ("late", "no_time")],
            )

    late, again, counted = asyncio.run(scenario())

    assert (late.status, late.json["error"]["hop"]) == (504, "fallback")
    assert late.json["error"]["spent_ms"]["fallback"] > 150
    assert (again.status, again.json["error"]["code"]) == (503, "engine_unavailable"), "it has learned"
    assert counted == [1, 1]


def test_a_fallback_that_fails_is_left_alone_for_a_while(tmp_path):
    async def scenario():
        async with (
            stand_ins(unified_0={}) as elsewhere,
            rig(tmp_path, settings(elsewhere["unified-0"])) as made,
        ):
            made.gateway.book.engine_seen("decode-0", up=False)
            await elsewhere["unified-0"].stand_in.stop()
            answers = [await made.ask() for _ in range(4)]
            metric = made.metric
            return answers, [
                metric("toolkit_fallback_requests_total", result=result) for result in ("failed", "failing")
            ]

    answers, counted = asyncio.run(scenario())

    assert [answer.status for answer in answers] == [503, 503, 503, 503], "the first cause is told"
    assert counted == [3, 1]


def test_only_so_many_at_once_and_a_client_that_leaves_gives_its_place_back(tmp_path):
    async def scenario():
        async with (
            stand_ins(unified_0=FROZEN) as elsewhere,
            rig(tmp_path, settings(elsewhere["unified-0"], max_in_flight=1)) as made,
        ):
            made.gateway.book.engine_seen("decode-0", up=False)
            holder = FakeExchange(chat())
            task = asyncio.create_task(made.gateway.api.handle(holder))
            await until(lambda: elsewhere["unified-0"].calls)
            refused = await made.ask()
            holder.hang_up()
            await task
            return refused, made.gateway.fallback.in_flight, elsewhere["unified-0"].calls[0].closed

    refused, left, _ = asyncio.run(scenario())

    assert refused.status == 503
    assert left == 0


def test_whatever_fails_every_request_has_one_outcome_and_every_place_comes_back(tmp_path):
    """80 requests over a pair that refuses some and an endpoint that has four places; some clients leave."""
    source = random.Random(11)

    async def scenario():
        async with (
            stand_ins(unified_0={"settings": {"costs": replace(INSTANT, prefill_s=0.005)}}) as elsewhere,
            rig(
                tmp_path,
                {
                    **settings(elsewhere["unified-0"], max_in_flight=4),
                    "schedule": {"max_in_flight": 4, "max_waiting": 8},
                },
                decode_0={"settings": {"costs": replace(INSTANT, prefill_s=0.005, decode_s=0.005)}},
            ) as made,
        ):

            async def one(number):
                await asyncio.sleep(source.uniform(0, 0.8))
                made.legs["decode-0"].set(answer_503=source.random() < 0.3)
                exchange = FakeExchange(
                    chat(stream=number % 3 > 0, user=str(number)), headers={"x-ttft-budget-ms": "60000"}
                )
                task = asyncio.create_task(made.gateway.api.handle(exchange))
                if number % 7 == 0:
                    await asyncio.sleep(source.uniform(0, 0.03))
                    exchange.hang_up()
                await task
                return exchange.status

            return await asyncio.gather(*(one(number) for number in range(80)))

    statuses = asyncio.run(scenario())
    kept = records(tmp_path)

    assert len(kept) == len({record["request_id"] for record in kept}) == len(statuses) == 80
    assert {record["outcome"] for record in kept} <= {"completed", "shed", "client_closed", "engine_failed"}
    assert any(record["degraded"] and record["outcome"] == "completed" for record in kept)
    for record in kept:
        assert (record["timeline"]["fallback"] is not None) >= bool(record["degraded"])


def test_the_original_is_sent_without_copying_its_images():
    body = orjson.dumps(
        {
            "model": "m",
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "what?"},
                        {"type": "image_url", "image_url": {"url": PHOTO, "detail": "low"}},
                        {"type": "image_url", "image_url": {"url": "http://x/a.png"}},
                    ],
                }
            ],
        }
    )

    pieces = original(parse(body), "")

    assert orjson.loads(b"".join(pieces)) == orjson.loads(body)
    assert any(isinstance(piece, memoryview) and len(piece) == len(PHOTO) for piece in pieces)


def test_what_cannot_be_written_again_is_the_client_s_fault_here_too():
    """Who is turned away at the door comes here without the composing that would have told."""
    deep = b"[" * 500 + b"]" * 500
    request = parse(b'{"messages": [{"role": "user", "content": "x"}], "metadata": ' + deep + b"}")

    with pytest.raises(InvalidRequest, match="nested too deeply"):
        original(request, "")


@pytest.mark.parametrize("text", ["two words\n", "", "\x07", "k" * 5000])
def test_a_key_file_that_holds_no_key_is_a_mistake_of_the_operator(tmp_path, text):
    path = tmp_path / "key"
    path.write_text(text)

    with pytest.raises(UsageFault, match="one key and nothing else"):
        FallbackConfig(url="http://127.0.0.1:9/v1", api_key_file=str(path)).key()
    with pytest.raises(UsageFault, match="cannot be read"):
        FallbackConfig(url="http://127.0.0.1:9/v1", api_key_file=str(tmp_path / "none")).key()


def test_the_endpoint_gets_its_own_key_and_nothing_of_the_client_s(tmp_path):
    path = tmp_path / "key"
    path.write_text("secret-of-the-operator\n")

    async def scenario():
        async with (
            stand_ins(unified_0={}) as elsewhere,
            rig(tmp_path, settings(elsewhere["unified-0"], api_key_file=str(path))) as made,
        ):
            made.gateway.book.engine_seen("decode-0", up=False)
            await made.ask(headers={"authorization": "Bearer the-client-s-own", "x-request-id": "mine"})
            return elsewhere["unified-0"].calls[0].headers

    headers = asyncio.run(scenario())

    assert headers["authorization"] == "Bearer secret-of-the-operator"
    assert "mine" not in headers.values()


@pytest.mark.parametrize("url", ["ftp://host/v1", "host:80/v1", "http://me:pw@host/v1", "http://host/v1?x=1"])
def test_a_fallback_url_is_looked_at_when_it_is_read(url):
    with pytest.raises(ValueError, match="fallback"):
        ServeConfig.model_validate({"fallback": {"url": url}})


def test_a_whole_answer_may_end_after_the_budget_and_then_counts_as_late(tmp_path):
    """No first token of it is seen, so nothing tells whether it was in time: its end is what is judged."""

    async def scenario():
        async with (
            stand_ins(unified_0={"settings": {"costs": replace(INSTANT, prefill_s=0.3)}}) as elsewhere,
            rig(tmp_path, settings(elsewhere["unified-0"])) as made,
        ):
            made.gateway.book.engine_seen("decode-0", up=False)
            whole = await made.ask(chat(stream=False), headers={"x-ttft-budget-ms": "150"})
            bad = made.metric(
                "toolkit_slo_requests_total",
                workload_class="text_only",
                slo_class="standard",
                verdict="bad",
            )
            return whole, bad

    whole, bad = asyncio.run(scenario())

    assert whole.status == 200 and whole.headers["x-served-by"] == "fallback"
    assert records(tmp_path)[0]["timeline"]["first_token"] > 0.3
    assert bad == 1


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "http://v1.example/api", "http://127.0.0.1:9/v1"])
def test_a_fallback_url_without_a_version_is_warned_of_once(tmp_path, url, caplog):
    async def scenario():
        async with rig(tmp_path, {"fallback": {"url": url}}):
            pass

    asyncio.run(scenario())

    told = [one.getMessage() for one in caplog.records if "fallback.url" in one.getMessage()]
    assert len(told) == (0 if url.endswith("/v1") else 1)
    assert all(f"{url}/chat/completions" in one for one in told)
