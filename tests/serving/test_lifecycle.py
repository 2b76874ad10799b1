"""Every request that arrives ends in exactly one outcome, and gives back all it took."""

import asyncio
import io

import orjson
import pybase64
import pytest
from PIL import Image

from serving.draining import Draining
from tests.serving.fake_exchange import FakeExchange
from tests.serving.rig import chat, records, rig, until
from tests.serving.stand_ins import FROZEN, SILENT, wire
from toolkit.core.sample import Sample


def picture(width=64, height=48, kind="PNG"):
    out = io.BytesIO()
    Image.new("RGB", (width, height), (200, 30, 30)).save(out, kind)
    return "data:image/png;base64," + pybase64.b64encode(out.getvalue()).decode()


def with_images(*urls, **fields):
    parts = [
        {"type": "text", "text": "what?"},
        *({"type": "image_url", "image_url": {"url": url}} for url in urls),
    ]
    return {"model": "m", "messages": [{"role": "user", "content": parts}], **fields}


BEGINS_THEN_HANGS = wire("silence", 2)


def test_a_stream_reaches_the_client_and_one_sample_is_written(tmp_path):
    """The headers tell what was decided; the journal tells each hop."""

    async def scenario():
        async with rig(tmp_path) as made:
            exchange = await made.ask()
            return exchange, made.metric(
                "toolkit_slo_requests_total", workload_class="text_only", slo_class="standard", verdict="good"
            )

    exchange, good = asyncio.run(scenario())
    (record,) = records(tmp_path)

    assert exchange.status == 200 and exchange.ended
    assert exchange.text.endswith("data: [DONE]\n\n")
    assert (
        exchange.headers["x-max-tokens"] == "512" and exchange.headers["x-served-by"] == "prefill-0+decode-0"
    )
    assert record["request_id"] == exchange.headers["x-request-id"]
    assert (record["outcome"], record["finish_reason"], record["completion_tokens"]) == (
        "completed",
        "stop",
        2,
    )
    times = [
        record["timeline"][name]
        for name in ("body_read", "prepared", "admitted", "dispatched", "first_token", "ended")
    ]
    assert times == sorted(times)
    assert good == 1


def test_a_whole_answer_is_decodes_body_unchanged(tmp_path):
    """Nothing is added to or taken from the answer of one choice."""

    async def scenario():
        async with rig(tmp_path) as made:
            return await made.ask(chat(stream=False)), made.legs["decode-0"].calls[0]

    exchange, seen = asyncio.run(scenario())

    assert exchange.text == seen.text and exchange.json["usage"]["completion_tokens"] == 2
    assert exchange.headers["content-type"] == "application/json"


def test_an_image_travels_at_the_size_the_model_would_choose(tmp_path):
    """Both engines get the same prepared pixels; the sample holds source and prepared sizes and tokens."""

    async def scenario():
        async with rig(tmp_path) as made:
            await made.ask(with_images(picture(640, 427), stream=True))
            return [
                made.legs[name].calls[0].body["messages"][0]["content"][1]["image_url"]["url"]
                for name in ("prefill-0", "decode-0")
            ]

    first, second = asyncio.run(scenario())
    sent = Image.open(io.BytesIO(pybase64.b64decode(first.partition(",")[2])))
    (record,) = records(tmp_path)
    (image,) = record["images"]

    assert first == second
    assert sent.size == (image["prepared_width"], image["prepared_height"])
    assert (image["width"], image["height"]) == (640, 427)
    assert image["tokens"] == sent.width * sent.height // 784 == record["image_tokens_estimated"]
    assert record["workload_class"] == "image_short"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"not json", 400, "invalid_json"),
        (chat(model="other"), 404, "not_found"),
        (with_images("file:///etc/passwd"), 400, "image_url_blocked"),
        (with_images("data:image/png;base64,AAAA"), 400, "image_invalid"),
        (with_images(*[picture()] * 17), 400, "too_many_images"),
    ],
)
def test_a_wrong_request_gets_its_code_and_reaches_no_engine(tmp_path, body, status, code):
    """Bad input costs an engine nothing, and does not count against the SLO."""

    async def scenario():
        async with rig(tmp_path) as made:
            exchange = await made.ask(body)
            calls = [call for leg in made.legs.values() for call in leg.calls]
            bad = made.metric(
                "toolkit_slo_requests_total", workload_class="text_only", slo_class="standard", verdict="bad"
            )
            return exchange, calls, bad

    exchange, calls, bad = asyncio.run(scenario())
    (record,) = records(tmp_path)

    assert (exchange.status, exchange.json["error"]["code"]) == (status, code)
    assert exchange.json["error"]["action"]
    assert record["outcome"] == "rejected"
    assert calls == [] and bad is None


def test_a_body_over_the_limit_is_refused_before_it_is_read(tmp_path):
    """The declared length is enough; without one, reading stops at the limit."""

    async def scenario():
        async with rig(tmp_path, {"gateway": {"max_body_bytes": 100}}) as made:
            declared = await made.ask(b"x" * 101)
            undeclared = await made.ask(b"x" * 300, headers={"content-length": "?"}, pieces=10)
            return declared, undeclared

    for exchange in asyncio.run(scenario()):
        assert (exchange.status, exchange.json["error"]["code"]) == (413, "body_too_large")
        assert exchange.headers["connection"] == "close"


def test_a_full_room_sheds_with_retry_after(tmp_path):
    """The request that finds no seat is told when to come back, and counts as bad for the SLO."""

    async def scenario():
        async with rig(
            tmp_path, {"schedule": {"max_in_flight": 1, "max_waiting": 1}}, prefill_0=FROZEN, decode_0=FROZEN
        ) as made:
            open_requests = [FakeExchange(chat()) for _ in range(2)]
            tasks = [asyncio.create_task(made.gateway.api.handle(open_requests[0]))]
            await until(lambda: made.gateway.admission.running == 1)
            tasks.append(asyncio.create_task(made.gateway.api.handle(open_requests[1])))
            await until(lambda: made.gateway.admission.queued == 1)
            refused = await made.ask()
            for exchange in open_requests:
                exchange.hang_up()
            await asyncio.gather(*tasks)
            return refused

    refused = asyncio.run(scenario())

    assert (refused.status, refused.json["error"]["code"]) == (429, "queue_full")
    assert int(refused.headers["retry-after"]) >= 1
    assert sorted(record["outcome"] for record in records(tmp_path)) == [
        "client_closed",
        "client_closed",
        "shed",
    ]


def test_requests_enter_in_the_order_they_were_ready(tmp_path):
    """First in, first out: the slot goes to whoever has waited longest."""

    async def scenario():
        async with rig(tmp_path, {"schedule": {"max_in_flight": 1}}) as made:
            exchanges = [FakeExchange(chat(user=str(number))) for number in range(5)]
            await asyncio.gather(*(made.gateway.api.handle(exchange) for exchange in exchanges))
            return [call.body["user"] for call in made.legs["decode-0"].calls]

    assert asyncio.run(scenario()) == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize("where", ["body", "wait", "prefill"])
def test_the_budget_ends_with_504_that_names_the_hop(tmp_path, where):
    """One total budget from arrival to the first token, whichever hop spends it."""

    async def scenario():
        async with rig(
            tmp_path, {"schedule": {"max_in_flight": 1}}, prefill_0=FROZEN, decode_0=FROZEN
        ) as made:
            headers = {"x-ttft-budget-ms": "60"}
            blocker = FakeExchange(chat())
            task = asyncio.create_task(made.gateway.api.handle(blocker))
            if where == "wait":
                await until(lambda: made.gateway.admission.running == 1)
            elif where != "prefill":
                blocker.hang_up()
            if where == "prefill":
                blocker.hang_up()
                await task
            exchange = FakeExchange(chat(), headers=headers)
            exchange.stalled_body = where == "body"
            await made.gateway.api.handle(exchange)
            blocker.hang_up()
            await task
            return exchange

    exchange = asyncio.run(scenario())

    assert (exchange.status, exchange.json["error"]["code"], exchange.json["error"]["hop"]) == (
        504,
        "ttft_budget_exceeded",
        where,
    )
    assert {"timed_out"} <= {record["outcome"] for record in records(tmp_path)}


@pytest.mark.parametrize("phase", ["queued", "before the first token", "mid-stream"])
def test_a_hang_up_frees_everything_at_any_phase(tmp_path, phase):
    """Both legs are closed and aborted; the seat and the slot are free at once."""

    async def scenario():
        prefill, decode = (SILENT, BEGINS_THEN_HANGS) if phase == "mid-stream" else (FROZEN, FROZEN)
        settings = {"schedule": {"max_in_flight": 1}}
        async with rig(tmp_path, settings, prefill_0=prefill, decode_0=decode) as made:
            first, second = FakeExchange(chat()), FakeExchange(chat())
            tasks = [asyncio.create_task(made.gateway.api.handle(exchange)) for exchange in (first, second)]
            await until(lambda: made.gateway.admission.queued == 1 and len(made.legs["decode-0"].calls) == 1)
            if phase == "mid-stream":
                await first.first_piece.wait()
            if phase == "queued":
                second.hang_up()
                await tasks[1]
                assert made.gateway.admission.queued == 0
            first.hang_up()
            await tasks[0]
            second.hang_up()
            await tasks[1]
            return made.legs["decode-0"], second

    decode, second = asyncio.run(scenario())
    aborted = set(decode.aborted)

    assert [record["outcome"] for record in records(tmp_path)] == ["client_closed", "client_closed"]
    assert len(aborted) == (1 if phase == "queued" else 2)
    assert phase == "mid-stream" or second.sent == []


def test_a_failure_in_mid_stream_is_an_error_event_and_no_done(tmp_path):
    """The status is spent; the client must still be able to tell."""

    async def scenario():
        async with rig(tmp_path, decode_0=wire("reset", 2)) as made:
            exchange = await made.ask()
            return exchange, made.gateway.book.ready

    exchange, ready = asyncio.run(scenario())
    events = [part for part in exchange.text.split("\n\n") if part]
    (record,) = records(tmp_path)

    assert exchange.status == 200 and exchange.ended
    assert orjson.loads(events[-1][6:])["error"]["code"] == "engine_failed"
    assert "[DONE]" not in exchange.text
    assert (record["outcome"], record["status"]) == ("engine_failed", 502)
    assert not ready


def test_an_engine_in_backpressure_is_not_called_broken(tmp_path):
    """503 from an engine is passed on as such, with Retry-After; the pair stays in rotation."""

    async def scenario():
        async with rig(tmp_path, prefill_0=FROZEN, decode_0={"answer_503": True}) as made:
            exchanges = [await made.ask(chat(stream=stream)) for stream in (True, False) * 2]
            return exchanges, made.gateway.book.ready

    exchanges, ready = asyncio.run(scenario())

    assert {e.json["error"]["message"] for e in exchanges} == {
        "The engines have no room for this request now."
    }
    assert all("request queue is full" in record["error_message"] for record in records(tmp_path))

    assert {(e.status, e.json["error"]["code"], e.headers["retry-after"]) for e in exchanges} == {
        (503, "engine_busy", "1")
    }
    assert ready


def test_without_a_ready_pair_a_request_is_told_so(tmp_path):
    """503 with Retry-After, before any work."""

    async def scenario():
        async with rig(tmp_path, prove=False) as made:
            return await made.ask()

    exchange = asyncio.run(scenario())

    assert (exchange.status, exchange.json["error"]["code"]) == (503, "engine_unavailable")


def test_a_fault_of_the_gateway_is_one_outcome_too(tmp_path):
    """An unexpected exception is a typed 500 and a sample; it kills nothing."""

    async def scenario():
        async with rig(tmp_path) as made:

            def broken(pair):
                raise RuntimeError("a bug")

            made.gateway.book.moved = broken
            return await made.ask(chat(stream=False))

    exchange = asyncio.run(scenario())
    (record,) = records(tmp_path)

    assert record["outcome"] == "internal_error"
    assert exchange.ended


def test_sixty_four_streams_at_once_leave_nothing_behind(tmp_path):
    """One outcome each; no task, connection, seat or slot is left (the rig's teardown checks the books)."""

    async def scenario():
        async with rig(tmp_path, {"schedule": {"max_in_flight": 16}}) as made:
            before = len(asyncio.all_tasks())
            patient = {"x-ttft-budget-ms": "60000"}
            exchanges = await asyncio.gather(*(made.ask(headers=patient) for _ in range(64)))
            await until(lambda: len(asyncio.all_tasks()) <= before + 2 * 16 * 2)
            return exchanges

    exchanges = asyncio.run(scenario())

    assert all(exchange.text.endswith("data: [DONE]\n\n") for exchange in exchanges)
    assert [record["outcome"] for record in records(tmp_path)] == ["completed"] * 64


def draining_of(made):
    gateway = made.gateway
    return Draining(gateway.lifecycle, gateway.status, gateway.service.config.gateway)


def test_stopping_refuses_new_work_and_cuts_what_will_not_end(tmp_path):
    """An open stream gets a last event that says why; nothing is dropped in silence."""

    async def scenario():
        settings = {"gateway": {"drain_timeout_s": 0.05}}
        async with rig(tmp_path, settings, decode_0=BEGINS_THEN_HANGS) as made:
            streaming = FakeExchange(chat())
            task = asyncio.create_task(made.gateway.api.handle(streaming))
            await streaming.first_piece.wait()
            draining = asyncio.create_task(draining_of(made).run())
            await asyncio.sleep(0)
            refused = await made.ask()
            await asyncio.gather(draining, task)
            return streaming, refused

    streaming, refused = asyncio.run(scenario())

    assert "shutting_down" in streaming.text and streaming.ended
    assert (refused.status, refused.json["error"]["code"]) == (503, "shutting_down")
    assert [record["outcome"] for record in records(tmp_path)] == ["shed", "shed"]


def test_keys_name_the_tenant_and_strangers_are_refused(tmp_path):
    """Only the name reaches metrics and journal, never the key."""
    keys = tmp_path / "keys.toml"
    keys.write_text('alice = "0123456789abcdef"\nbob = "fedcba9876543210"\n')

    async def scenario():
        async with rig(tmp_path, {"gateway": {"api_keys_file": str(keys)}}) as made:
            known = await made.ask(headers={"authorization": "Bearer fedcba9876543210"})
            stranger = await made.ask(headers={"authorization": "Bearer 0123456789abcdeX"})
            models = await made.ask(b"", method="GET", path="/v1/models")
            return known, stranger, models

    known, stranger, models = asyncio.run(scenario())

    assert (known.status, stranger.status, models.status) == (200, 401, 401)
    assert stranger.headers["www-authenticate"] == "Bearer"
    assert [record["tenant"] for record in records(tmp_path)] == ["bob", "anonymous"]
    assert "fedcba" not in (tmp_path / "journal" / "requests.jsonl").read_text()


def test_pages_answer_and_unknown_ones_say_where_the_api_is(tmp_path):
    """Liveness, readiness, models, metrics; the rest is a typed 404 or 405."""

    async def scenario():
        async with rig(tmp_path) as made:
            paths = ["/healthz", "/readyz", "/v1/models", "/metrics", "/nothing"]
            pages = {path: await made.ask(b"", method="GET", path=path) for path in paths}
            pages["put"] = await made.ask(b"", method="PUT")
            return pages

    pages = asyncio.run(scenario())

    assert {path: page.status for path, page in pages.items()} == {
        "/healthz": 200, "/readyz": 200, "/v1/models": 200, "/metrics": 200, "/nothing": 404, "put": 405,
    }  # fmt: skip
    assert pages["/v1/models"].json["data"][0]["id"] == "m"
    assert 'toolkit_pair_ready{decode="decode-0",prefill="prefill-0"} 1.0' in pages["/metrics"].text


class Jumping:
    """A clock that tests push forward; the wall stays."""

    def __init__(self):
        self.ahead = 0.0

    def monotonic(self):
        import time

        return time.monotonic() + self.ahead

    def wall(self):
        return 1_700_000_000.0


@pytest.mark.parametrize("others_answer", [True, False], ids=["overloaded", "stuck"])
def test_only_a_stuck_pair_is_suspect_for_being_late(tmp_path, others_answer):
    """Late answers of an overloaded pair must not turn a slow minute into an outage; a pair that gives nothing is probed."""

    async def scenario():
        async with rig(tmp_path) as made:
            decode = made.legs["decode-0"]
            answerer = made.gateway.lifecycle._parts.answerer
            answerer._clock = clock = Jumping()
            for _ in range(3):
                decode.calls.clear()
                decode.set(**SILENT)
                late = FakeExchange(chat(user="slow"), headers={"x-ttft-budget-ms": "500"})
                task = asyncio.create_task(made.gateway.api.handle(late))
                await until(lambda: made.gateway.admission.running == 1 and decode.calls)
                decode.set()
                if others_answer:
                    await made.ask(chat(user="quick"))
                clock.ahead += 10
                await task
            return made.gateway.book.unproven() == []

    assert asyncio.run(scenario()) is others_answer


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_never_reads_holds_a_slot_no_longer_than_the_stall_limit(tmp_path, stream):
    """Whole answers too: a few such clients would fill every slot."""

    class Deaf(FakeExchange):
        async def send(self, chunk):
            await asyncio.Event().wait()

    async def scenario():
        async with rig(tmp_path, {"stream_stall_s": 0.05}) as made:
            exchange = Deaf(chat(stream=stream))
            await made.gateway.api.handle(exchange)

    asyncio.run(scenario())
    assert [record["outcome"] for record in records(tmp_path)] == ["client_closed"]


def test_a_client_whose_requests_make_an_engine_fail_takes_the_pair_from_nobody(tmp_path):
    """500 after 500 for one, 200 for the others."""

    fails = wire(status=500, message="Internal error")

    async def scenario():
        async with rig(tmp_path, prefill_0=fails, decode_0=fails) as made:
            for _ in range(5):
                poisoned = await made.ask(chat(user="poison"))
            for leg in made.legs.values():
                leg.set()
            return poisoned, await made.ask(chat(user="other"))

    poisoned, other = asyncio.run(scenario())
    assert (poisoned.status, other.status) == (502, 200)


def test_errors_have_the_headers_of_answers_as_far_as_they_were_decided(tmp_path):
    async def scenario():
        async with rig(tmp_path) as made:
            made.gateway.book.engine_seen("decode-0", up=False)
            failed = await made.ask(chat(max_tokens=7), headers={"x-slo-class": "batch"})
            return failed, await made.ask(b"{", headers={"x-slo-class": "realtime"})

    failed, unread = asyncio.run(scenario())

    assert failed.status == 503 and unread.status == 400
    names = ("x-workload-class", "x-slo-class", "x-max-tokens")
    assert [failed.headers.get(name) for name in names] == ["text_only", "batch", "7"]
    assert [unread.headers.get(name) for name in names] == ["unclassified", "realtime", None]


def test_a_request_that_is_found_wrong_was_so_while_it_was_parsed(tmp_path):
    """Not while its images were fetched, which was not begun."""

    async def scenario():
        async with rig(tmp_path) as made:
            await made.ask(chat(max_tokens=0))
            await made.ask(chat(model="another"))
            return made.metric("toolkit_errors_total", code="invalid_request", hop="parse")

    assert asyncio.run(scenario()) == 1
    for record in records(tmp_path):
        assert record["error_hop"] == "parse"
        assert list(Sample.from_dict(record).timeline.spent()) == ["body", "parse"]


@pytest.mark.parametrize("kind", ["simulated", "auto"])
def test_a_client_is_told_that_no_model_answers_it(tmp_path, kind):
    """By a header of answers and a gauge, as the stand-ins themselves do."""

    async def scenario():
        async with rig(tmp_path, {"engine": {"kind": kind}}) as made:
            answers = [await made.ask(), await made.ask(chat(stream=False))]
            return answers, (await made.ask(b"", method="GET", path="/metrics")).text

    answers, page = asyncio.run(scenario())

    simulated = kind == "simulated"
    assert [answer.headers.get("x-simulated") for answer in answers] == ["1" if simulated else None] * 2
    assert f"\ntoolkit_simulated {float(simulated)}\n" in page
