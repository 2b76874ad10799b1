"""The scheduler in a whole gateway: real parts, stand-in engines."""

import asyncio

from serving.config import PRIORITY_LEVELS
from tests.serving.fake_exchange import FakeExchange
from tests.serving.rig import chat, records, rig, until
from tests.serving.stand_ins import FROZEN
from toolkit.core.sample import SloClass


def test_a_short_request_enters_before_long_ones_that_came_first(tmp_path):
    """One slot; three long ones wait, then a short one comes."""

    async def scenario():
        async with rig(tmp_path, {"schedule": {"max_in_flight": 1}}, decode_0=FROZEN) as made:
            decode = made.legs["decode-0"]
            holder = FakeExchange(chat(user="holder"))
            tasks = [asyncio.create_task(made.gateway.api.handle(holder))]
            await until(lambda: decode.calls)
            waiting = [chat(user=f"long {number}", max_tokens=4000) for number in range(3)]
            for body in [*waiting, chat(user="short", max_tokens=16)]:
                queued = made.gateway.admission.queued
                tasks.append(asyncio.create_task(made.ask(body, headers={"x-slo-class": "batch"})))
                await until(lambda: made.gateway.admission.queued == queued + 1)  # noqa: B023
            page = (await made.ask(b"", method="GET", path="/metrics")).text
            decode.set()
            holder.hang_up()
            await asyncio.gather(*tasks)
            return [call.body["user"] for call in decode.calls], page

    order, page = asyncio.run(scenario())

    assert order == ["holder", "short", "long 0", "long 1", "long 2"]
    assert 'toolkit_requests_queued{slo_class="batch",workload_class="text_only"} 4.0' in page
    assert "toolkit_in_flight_limit 1.0" in page


def test_what_would_be_late_is_a_429_at_once(tmp_path):
    """Behind a slot that is held for a second in the mean, 0.3 s are not enough: refused before the engines hear of it."""

    async def scenario():
        async with rig(tmp_path, {"schedule": {"max_in_flight": 1}}) as made:
            for learned in made.gateway.admission._late.learned._slot.values():
                learned.add(1.0, made.gateway.lifecycle._parts.clock.monotonic())
            decode = made.legs["decode-0"]
            decode.set(**FROZEN)
            holder = FakeExchange(chat())
            task = asyncio.create_task(made.gateway.api.handle(holder))
            await until(lambda: decode.calls)
            refused = await made.ask(headers={"x-ttft-budget-ms": "300"})
            calls = len(decode.calls)
            holder.hang_up()
            await task
            return refused, calls, made.metric("toolkit_refused_early_total", **unclassified)

    unclassified = {"workload_class": "unclassified", "slo_class": "standard"}
    refused, calls, counted = asyncio.run(scenario())

    assert (refused.status, refused.json["error"]["code"]) == (429, "queue_too_long")
    assert refused.json["error"]["hop"] == "wait"
    assert int(refused.headers["retry-after"]) >= 1
    assert calls == 1
    assert counted == 1
    assert sorted(record["outcome"] for record in records(tmp_path)) == ["client_closed", "shed"]


def test_an_engine_in_backpressure_gets_fewer_at_once_and_more_again_when_it_answers(tmp_path):
    """503 shrinks the limit; first tokens in time raise it."""

    async def scenario():
        settings = {"schedule": {"max_in_flight": 16, "min_in_flight": 2}, "retry": {"max_attempts": 1}}
        async with rig(tmp_path, settings) as made:
            decode = made.legs["decode-0"]
            limits = [made.gateway.admission.limit]
            decode.set(answer_503=True)
            for _ in range(8):
                await made.ask()
            limits.append(made.gateway.admission.limit)
            decode.set()
            patient = {"x-slo-class": "batch"}
            for _ in range(8):
                await asyncio.gather(*(made.ask(headers=patient) for _ in range(8)))
            limits.append(made.gateway.admission.limit)
            return limits

    start, backed_off, after = asyncio.run(scenario())

    assert (start, backed_off) == (8, 2)
    assert after > backed_off


def test_a_flood_of_one_class_leaves_seats_for_another(tmp_path):
    """Four seats, two of them at most for texts; the third text is told so, and an image still finds one."""

    async def scenario():
        settings = {"schedule": {"max_in_flight": 1, "max_waiting": 4}, "standard": {"room_share": 1.0}}
        async with rig(tmp_path, settings, prefill_0=FROZEN, decode_0=FROZEN) as made:
            admission = made.gateway.admission
            open_requests = [FakeExchange(chat()) for _ in range(3)]
            tasks = []
            for exchange in open_requests:
                tasks.append(asyncio.create_task(made.gateway.api.handle(exchange)))
                await until(lambda: admission.running + admission.queued == len(tasks))
            refused = await made.ask()
            admission.arrive("image", SloClass.STANDARD, 0.0, 1e12)
            free = admission.place("image") is not None
            admission.leave("image", 0.0)
            for exchange in open_requests:
                exchange.hang_up()
            await asyncio.gather(*tasks)
            return refused, free

    refused, free = asyncio.run(scenario())

    assert (refused.status, refused.json["error"]["code"]) == (429, "queue_full")
    assert "text_only" in refused.json["error"]["message"]
    assert free


def test_engines_that_schedule_by_priority_are_handed_the_order(tmp_path):
    """Both legs get it as a header, which wins over a field of the client's; other engines get none."""

    async def scenario(priority):
        async with rig(tmp_path / str(priority), {"engine": {"priority": priority}}) as made:
            await made.ask(chat(max_tokens=16, priority=99))
            await made.ask(chat(max_tokens=3000))
            return [
                [call.headers.get("x-override-priority") for call in leg.calls] for leg in made.legs.values()
            ]

    assert asyncio.run(scenario(False)) == [[None, None], [None, None]]
    prefill, decode = asyncio.run(scenario(True))

    assert prefill == decode
    assert 0 <= int(prefill[1]) < int(prefill[0]) < PRIORITY_LEVELS
