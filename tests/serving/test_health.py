"""The prober keeps the book true."""

import asyncio
import contextlib

from serving import health
from tests.serving.rig import rig, until
from tests.serving.stand_ins import SILENT


def test_pairs_enter_rotation_after_an_image_and_leave_when_an_engine_goes(tmp_path):
    """The probe carries a picture and goes through both legs; a returning engine is probed again."""

    async def scenario():
        settings = {"gateway": {"health_interval_s": 0.01}}
        async with rig(tmp_path, settings, prove=False) as made:
            watching = asyncio.create_task(made.gateway.prober.run())
            book = made.gateway.book
            await until(lambda: book.ready)
            probe = made.legs["decode-0"].calls[0].body
            made.legs["decode-0"].set(starting=True)
            await until(lambda: not book.ready)
            faults = dict(made.gateway.prober.faults)
            made.legs["decode-0"].set()
            await until(lambda: book.ready)
            probes = len(made.legs["decode-0"].calls)
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching
            return probe, faults, probes

    probe, faults, probes = asyncio.run(scenario())

    assert [part["type"] for part in probe["messages"][0]["content"]] == ["image_url", "text"]
    assert probe["max_tokens"] == 1
    assert faults == {"decode-0": "/ready answered 503"}
    assert probes >= 2


def test_a_pair_that_answers_ready_but_cannot_transfer_stays_out(tmp_path):
    """/ready says nothing about the KV path; the fault is told at /readyz."""

    async def scenario():
        settings = {"gateway": {"health_interval_s": 0.01}}
        async with rig(tmp_path, settings, prove=False, prefill_0={"transfer_failure_rate": 1}) as made:
            watching = asyncio.create_task(made.gateway.prober.run())
            await until(lambda: "prefill-0+decode-0" in made.gateway.prober.faults)
            page = await made.ask(b"", method="GET", path="/readyz")
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching
            return page

    page = asyncio.run(scenario())

    assert page.status == 503
    assert page.json["engines"] == {"prefill-0": True, "decode-0": True}
    assert "KVTransferError" in page.json["faults"]["prefill-0+decode-0"]


def test_an_instance_that_stopped_working_while_it_was_drained_is_not_trusted_again(tmp_path, monkeypatch):
    """Whatever its weight: /ready answers, nothing comes out of it; a probe finds that out, and no request does."""
    monkeypatch.setattr(health, "PROBE_AGAIN_TIMEOUT_S", 0.1)

    async def scenario():
        settings = {"gateway": {"health_interval_s": 0.01}}
        async with rig(tmp_path, settings, decode_1={}) as made:
            book, decode = made.gateway.book, made.legs["decode-1"]
            watching = asyncio.create_task(made.gateway.prober.run())
            book.weigh("decode-1", 10.0)
            before = (await made.ask()).headers["x-served-by"]
            book.drain("decode-1")
            decode.set(**SILENT)
            drained = [(await made.ask()).headers["x-served-by"] for _ in range(2)]
            book.undrain("decode-1")
            after = [await made.ask() for _ in range(3)]
            await until(lambda: not book.in_rotation(book.pairs["prefill-0", "decode-1"]))
            decode.set()
            await until(lambda: book.unproven() == [])
            again = (await made.ask()).headers["x-served-by"]
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching
            return before, drained, after, again

    before, drained, after, again = asyncio.run(scenario())

    assert (before, again) == ("prefill-0+decode-1", "prefill-0+decode-1")
    assert set(drained) == {"prefill-0+decode-0"}
    assert {(one.status, one.headers["x-served-by"]) for one in after} == {(200, "prefill-0+decode-0")}
