"""KV leases in a whole gateway: real parts, stand-in engines that tell their pools."""

import asyncio
import io

import pytest

from serving.engines.simulated.effects import Limits
from tests.serving.access.pictures import photo
from tests.serving.access.test_data_uri import data_uri
from tests.serving.fake_exchange import FakeExchange
from tests.serving.rig import chat, records, rig, until
from tests.serving.stand_ins import FROZEN

POOL = {"settings": {"limits": Limits(max_total_tokens=1600, page_size=16)}}
PATIENT = {"x-slo-class": "batch"}


def picture(width=640, height=427, level=0):
    out = io.BytesIO()
    photo(width, height).point(lambda value: min(255, value + level)).save(out, "JPEG")
    return data_uri(out.getvalue())


def photos(count, **fields):
    """A question about so many different photos, 256 tokens each at most."""
    parts = [{"type": "image_url", "image_url": {"url": picture(level=number)}} for number in range(count)]
    content = [{"type": "text", "text": "What is this?"}, *parts]
    return chat(stream=False, messages=[{"role": "user", "content": content}], **fields)


def test_pools_are_those_that_the_engines_tell_and_leases_are_given_back(tmp_path):
    """1,600 tokens in pages of 16, nothing leased before and after; both on /metrics."""

    async def scenario():
        async with rig(tmp_path, decode_0=POOL) as made:
            decode = made.legs["decode-0"]
            decode.set(**FROZEN)
            holder = FakeExchange(chat(max_tokens=100))
            task = asyncio.create_task(made.gateway.api.handle(holder))
            await until(lambda: decode.calls)
            during = (await made.ask(b"", method="GET", path="/metrics")).text
            holder.hang_up()
            await task
            return during, (await made.ask(b"", method="GET", path="/metrics")).text

    during, after = asyncio.run(scenario())

    assert 'toolkit_kv_pool_tokens{decode="decode-0"} 1600.0' in during
    assert (
        'toolkit_kv_leased_tokens{decode="decode-0"} 112.0' in during
    )  # 101 and a few of the prompt, in whole pages
    assert 'toolkit_kv_leased_tokens{decode="decode-0"} 0.0' in after


def test_over_the_cap_is_a_413_with_the_arithmetic_and_no_engine_hears_of_it(tmp_path):
    """15 % of 1,600 tokens are 240."""

    async def scenario():
        async with rig(tmp_path, decode_0=POOL) as made:
            refused = await made.ask(chat(max_tokens=300))
            calls = [len(leg.calls) for leg in made.legs.values()]
            counted = made.metric(
                "toolkit_kv_refused_total", workload_class="text_only", code="kv_lease_exceeded"
            )
            return refused, calls, counted

    refused, calls, counted = asyncio.run(scenario())

    error = refused.json["error"]
    assert (refused.status, error["code"]) == (413, "kv_lease_exceeded")
    assert "+ 300 max_tokens" in error["message"]
    assert "one request may have 240, 15 % of the engine's KV pool of 1600 tokens" in error["message"]
    assert calls == [0, 0]
    assert counted == 1
    assert records(tmp_path)[0]["outcome"] == "rejected"


@pytest.mark.parametrize("degrade", [True, False])
def test_images_are_made_smaller_where_the_class_lets_them_be(tmp_path, degrade):
    """Three photos of 247 tokens into 480: told in a header, and what the engine counts is what was leased."""

    async def scenario():
        settings = {"lease": {"cap": 0.3}, "standard": {"degrade": degrade}}
        async with rig(tmp_path, settings, decode_0=POOL) as made:
            return await made.ask(photos(3, max_tokens=16))

    answer = asyncio.run(scenario())
    record = records(tmp_path)[0]

    if not degrade:
        assert (answer.status, answer.json["error"]["code"]) == (413, "kv_lease_exceeded")
        assert "x-toolkit-degraded" not in answer.headers
        return
    assert answer.status == 200
    tokens = record["image_tokens_estimated"]
    assert answer.headers["x-toolkit-degraded"] == f"images;from=741;to={tokens};why=lease"
    assert record["degraded"] == [{"kind": "images", "why": "lease", "before": 741, "after": tokens}]
    assert 300 <= tokens <= 480
    assert sum(image["tokens"] for image in record["images"]) == tokens
    assert all(image["prepared_width"] < 588 for image in record["images"])


def test_never_below_the_floor(tmp_path):
    """Half of the tokens at least: three photos do not fit, a 413 as without."""

    async def scenario():
        settings = {"lease": {"cap": 0.2}, "standard": {"degrade": True, "degrade_floor": 0.5}}
        async with rig(tmp_path, settings, decode_0=POOL) as made:
            return await made.ask(photos(3, max_tokens=16))

    answer = asyncio.run(scenario())

    assert (answer.status, answer.json["error"]["code"]) == (413, "kv_lease_exceeded")


def test_a_request_waits_for_kv_while_slots_are_free(tmp_path):
    """Two hold nearly all of the pool; the third enters as soon as one of them has left."""

    async def scenario():
        async with rig(tmp_path, {"lease": {"cap": 0.5}}, decode_0=POOL) as made:
            decode, admission = made.legs["decode-0"], made.gateway.admission
            decode.set(**FROZEN)
            holders = [FakeExchange(chat(max_tokens=700)) for _ in range(2)]
            tasks = [asyncio.create_task(made.gateway.api.handle(holder)) for holder in holders]
            await until(lambda: len(decode.calls) == 2)
            third = asyncio.create_task(made.ask(chat(max_tokens=700), headers=PATIENT))
            await until(lambda: admission.lacking == 1)
            slots = admission.limit - admission.running
            page = (await made.ask(b"", method="GET", path="/metrics")).text
            decode.set()
            holders[0].hang_up()
            answer = await third
            holders[1].hang_up()
            await asyncio.gather(*tasks)
            return slots, page, answer

    slots, page, answer = asyncio.run(scenario())

    assert slots > 0
    assert "toolkit_requests_lacking_kv 1.0" in page
    assert answer.status == 200
    waited = next(record for record in records(tmp_path) if record["slo_class"] == "batch")
    assert 0 < waited["lacked_kv"] <= waited["timeline"]["admitted"]


def test_the_decode_that_has_room_gets_it(tmp_path):
    """Pairing honours where a request entered; what others use there counts."""

    async def scenario():
        async with rig(tmp_path, {"lease": {"cap": 0.5}}, decode_0=POOL, decode_1=POOL) as made:
            for leg in ("decode-0", "decode-1"):
                made.legs[leg].set(**FROZEN)
            exchanges = [FakeExchange(chat(max_tokens=700)) for _ in range(4)]
            tasks = []
            for exchange in exchanges:
                tasks.append(asyncio.create_task(made.gateway.api.handle(exchange)))
                await until(lambda: sum(len(leg.calls) for leg in made.legs.values()) == 2 * len(tasks))
            calls = {name: len(leg.calls) for name, leg in made.legs.items()}
            held = [
                made.gateway.admission.leases.place(key) for key, _ in made.gateway.admission.leases.held()
            ]
            for exchange in exchanges:
                exchange.hang_up()
            await asyncio.gather(*tasks)
            return calls, sorted(held)

    calls, held = asyncio.run(scenario())

    assert calls == {"prefill-0": 4, "decode-0": 2, "decode-1": 2}
    assert held == ["decode-0", "decode-0", "decode-1", "decode-1"]


def test_a_retry_takes_its_lease_to_the_other_decode(tmp_path):
    """The first attempt is refused by one; the second is made on the other, and holds its KV there."""

    async def scenario():
        faults = {"decode_0": POOL, "decode_1": POOL}
        async with rig(tmp_path, {"lease": {"cap": 0.5}}, **faults) as made:
            made.legs["decode-0"].set(answer_503=True)
            made.legs["decode-1"].set(**FROZEN)
            exchange = FakeExchange(chat(max_tokens=700))
            task = asyncio.create_task(made.gateway.api.handle(exchange))
            await until(lambda: made.legs["decode-1"].calls)
            pools = {name: pool.leased for name, pool in made.gateway.admission.leases.pools.items()}
            exchange.hang_up()
            await task
            return pools

    pools = asyncio.run(scenario())

    assert pools["decode-0"] == 0
    assert pools["decode-1"] > 0


def test_where_the_other_decode_has_no_room_the_failure_is_told(tmp_path):
    """No retry into pages that others hold."""

    async def scenario():
        settings = {"lease": {"cap": 0.9}}
        async with rig(tmp_path, settings, decode_0=POOL, decode_1=POOL) as made:
            made.legs["decode-1"].set(**FROZEN)
            made.gateway.book.drain("decode-0")
            holder = FakeExchange(chat(max_tokens=1400))
            task = asyncio.create_task(made.gateway.api.handle(holder))
            await until(lambda: made.legs["decode-1"].calls)
            made.gateway.book.undrain("decode-0")
            await made.prove()
            made.legs["decode-0"].set(answer_503=True)
            answer = await made.ask(chat(max_tokens=700))
            calls = len(made.legs["decode-1"].calls)
            holder.hang_up()
            await task
            return answer, calls

    answer, calls = asyncio.run(scenario())

    assert (answer.status, answer.json["error"]["code"]) == (503, "engine_busy")
    assert calls == 1


def test_an_engine_that_does_not_tell_serves_without_leases(tmp_path):
    """Its pool is not made up: a request of any size goes there, and /metrics says 0."""

    async def scenario():
        async with rig(tmp_path, decode_0=POOL) as made:
            made.gateway.lifecycle.pool_told("decode-0", None)
            answer = await made.ask(chat(max_tokens=1000))
            return (
                answer,
                made.gateway.admission.leases.binding,
                made.metric("toolkit_kv_pool_tokens", decode="decode-0"),
            )

    answer, binding, _ = asyncio.run(scenario())

    assert answer.status == 200
    assert not binding


@pytest.mark.parametrize(
    ("settings", "headers", "body", "told", "not_told"),
    [
        ({}, {}, chat(max_tokens=300), "Send less text or a smaller max_tokens:", "image"),
        ({}, {}, chat(max_tokens=300, n=2), "a smaller max_tokens or n:", "image"),
        ({}, {}, photos(2, max_tokens=16), "or set standard.degrade so", "shrink"),
        ({"degrade": True}, {}, photos(2, max_tokens=200), "at least (standard.degrade_floor", "forbids"),
        ({"degrade": True}, {}, photos(2, max_tokens=200), "and there is room for", "or set"),
        (
            {"degrade": True},
            {"x-toolkit-degrade": "never"},
            photos(2, max_tokens=16),
            "Your x-toolkit-degrade forbids smaller images.",
            "or set",
        ),
        (
            {"degrade_max_tokens": 16},
            {"x-toolkit-degrade": "images"},
            chat(max_tokens=300),
            "forbids a lower max_tokens.",
            "image",
        ),
    ],
)
def test_a_413_says_what_would_help_this_request(tmp_path, settings, headers, body, told, not_told):
    async def scenario():
        async with rig(tmp_path, {"standard": settings}, decode_0=POOL) as made:
            return await made.ask(body, headers=headers)

    error = asyncio.run(scenario()).json["error"]

    assert error["code"] == "kv_lease_exceeded"
    assert told in error["action"] and not_told not in error["action"]
    assert error["action"].count("lease.cap") == 1


@pytest.mark.parametrize("sent", [True, False])
def test_a_413_says_what_of_its_arithmetic_is_not_the_client_s(tmp_path, sent):
    """Stand-ins have no tokenizer, so the prompt is an estimate; 512 is the default."""

    async def scenario():
        async with rig(tmp_path, decode_0=POOL) as made:
            return await made.ask(chat(**({"max_tokens": 512} if sent else {})))

    message = asyncio.run(scenario()).json["error"]["message"]

    assert "prompt tokens (estimated) + 512 max_tokens" in message
    assert ("(the default: none was sent)" in message) is not sent


def test_a_gateway_is_ready_once_a_decode_was_asked_and_who_came_before_is_counted(tmp_path):
    """A restart opens no window in which the pool is given out twice."""

    async def scenario():
        async with rig(tmp_path, prove=False, decode_0=POOL) as made:
            book, leases, decode = made.gateway.book, made.gateway.admission.leases, made.legs["decode-0"]
            for name in book.engines:
                book.engine_seen(name, up=True)
            for pair in book.unproven():
                book.proven(pair)
            decode.set(**FROZEN)
            early = FakeExchange(chat(max_tokens=1400))
            task = asyncio.create_task(made.gateway.api.handle(early))
            await until(lambda: decode.calls)
            pages = [await made.ask(b"", method="GET", path="/readyz")]
            await made.gateway.kv.look()
            pages.append(await made.ask(b"", method="GET", path="/readyz"))
            leased = leases.pools["decode-0"].leased
            early.hang_up()
            await task
            return [page.status for page in pages], leased, leases.pools["decode-0"].leased

    statuses, during, after = asyncio.run(scenario())

    assert statuses == [503, 200]
    assert during >= 1400 / 16
    assert after == 0
