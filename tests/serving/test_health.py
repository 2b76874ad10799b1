"""The prober keeps the book true."""

import asyncio
import contextlib

from tests.serving.rig import rig, until


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
