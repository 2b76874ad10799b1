"""The two legs of an attempt live and die together."""

import asyncio
import random
from dataclasses import replace
from string import ascii_lowercase

import orjson
import pytest

from serving import chat
from serving.attempt import LegLost, Limits, Pair, Progress
from serving.dispatch import Dispatcher
from serving.engine_body import Rendezvous, compose
from tests.serving.stand_ins import FROZEN, INSTANT, SILENT, sized, stand_ins, wire
from toolkit.core.clock import SystemClock
from toolkit.core.errors import Busy, ClientGone, EngineFailed, InvalidRequest, OutOfTime
from toolkit.core.http.client import HttpClient


class Attempt:
    """One attempt over two stand-ins; what was forwarded, and that nothing is left behind."""

    def __init__(self, prefill=None, decode=None, *, stream=True, budget_s=5.0, stall_s=5.0, **asked):
        self.faults = {"prefill_0": prefill or {}, "decode_0": decode or {}}
        self.asked = {"messages": [{"role": "user", "content": "hi"}], "stream": stream, **asked}
        self.is_stream = stream
        self.budget_s = budget_s
        self.stall_s = stall_s
        self.pieces: list[bytes] = []
        self.progress = Progress()
        self.error: Exception | None = None
        self.answer = b""
        self.slow_client = False

    def run(self):
        asyncio.run(self._run())
        return self

    async def _run(self):
        clock = SystemClock()
        async with stand_ins(**self.faults) as legs:
            self.prefill, self.decode = legs["prefill-0"], legs["decode-0"]
            client = HttpClient(connect_timeout_s=1.0)
            dispatcher = Dispatcher(client, clock, Rendezvous(random.Random(3)))
            most = self.asked.get("max_tokens", 4)
            body = compose(chat.parse(orjson.dumps(self.asked)), [], most, "m")
            pair = Pair(self.prefill.endpoint, self.decode.endpoint)
            limits = Limits(clock.monotonic() + self.budget_s, self.stall_s, 5.0)
            try:
                if self.is_stream:
                    await dispatcher.stream(pair, body, limits, self.progress, self._forward)
                else:
                    self.answer = await dispatcher.whole(pair, body, limits, self.progress)
            except Exception as error:
                self.error = error
            await dispatcher.drain()
            assert dispatcher.open_aborts == 0
            await client.close()
            assert client.open_connections == 0

    async def _forward(self, piece):
        if self.slow_client:
            await asyncio.Event().wait()
        self.pieces.append(piece)

    @property
    def text(self):
        return b"".join(self.pieces).decode()

    @property
    def aborted(self):
        return {(leg.name, rid) for leg in (self.prefill, self.decode) for rid in leg.aborted}

    @property
    def both_rids(self):
        return {("prefill-0", self.progress.rids[0]), ("decode-0", self.progress.rids[1])}


def test_the_answer_comes_from_decode_event_by_event_and_nothing_is_aborted():
    """The client sees decode's bytes unchanged, from the first content token on."""
    attempt = Attempt().run()
    (seen,) = attempt.decode.calls

    assert attempt.error is None
    assert attempt.text == seen.text and attempt.text.endswith("data: [DONE]\n\n")
    assert attempt.text != attempt.prefill.calls[0].text and len(seen.said.split()) == 2
    assert attempt.progress.token_events == 2 and len(attempt.progress.gaps_s) == 1
    assert attempt.progress.finish_reason == "stop"
    assert attempt.progress.prefill_done_at <= attempt.progress.first_token_at
    assert attempt.aborted == set()


def test_both_legs_get_one_body_with_their_own_rid_and_one_room():
    """The rendezvous is the prefill's bootstrap server; rids differ so that each leg can be aborted alone."""
    attempt = Attempt().run()
    first, second = attempt.prefill.calls[0].body, attempt.decode.calls[0].body
    own = {"rid"}

    assert {k: v for k, v in first.items() if k not in own} == {
        k: v for k, v in second.items() if k not in own
    }
    assert (first["rid"], second["rid"]) == attempt.progress.rids
    assert first["rid"] != second["rid"] and len(first["rid"]) == len(second["rid"])
    assert (
        first["bootstrap_room"] == attempt.progress.room
        and first["bootstrap_port"] == attempt.prefill.endpoint.bootstrap_port
    )


def refusing(status, message):
    return wire(status=status, message=message)


@pytest.mark.parametrize(
    ("prefill", "decode", "kind", "says"),
    [
        (refusing(500, "Prefill bootstrap failed"), FROZEN, EngineFailed, "prefill-0 failed (500): Prefill bootstrap failed"),
        (FROZEN, refusing(500, "KVTransferError"), EngineFailed, "decode-0 failed (500): KVTransferError"),
        (refusing(400, "too long\n\n  File x"), FROZEN, InvalidRequest, "The engine refused the request: too long"),
        (FROZEN, refusing(503, "full"), Busy, "decode-0 has no room: full"),
        (FROZEN, {"answer_503": True}, Busy, "decode-0 has no room: The request queue is full."),
        (FROZEN, refusing(429, "full"), Busy, "decode-0 has no room: full"),
        (sized(bootstrap_timeout_s=0.01), FROZEN, EngineFailed, "prefill-0 failed (500): Prefill bootstrap failed for request"),
        (FROZEN, sized(waiting_timeout_s=0.01), EngineFailed, "decode-0 failed (500): Decode transfer failed for request"),
        (FROZEN, sized(max_total_tokens=4), InvalidRequest, "The engine refused the request: Request has"),
        (SILENT, {"abort_after_tokens": 1}, EngineFailed, "decode-0 aborted the request."),
        (SILENT, wire("end", 2), EngineFailed, "without a finish_reason after 1 token events"),
        (SILENT, wire("done", 2), EngineFailed, "without a finish_reason after 1 token events"),
        (SILENT, wire("end", 4), EngineFailed, "without [DONE]"),
        (SILENT, wire("reset", 2), LegLost, "The connection to decode-0 broke"),
        (wire("reset", 2), SILENT, LegLost, "The connection to prefill-0 broke"),
        (SILENT, wire("garbage"), EngineFailed, "not JSON"),
    ],
    ids=[
        "prefill 500", "decode 500", "prefill 400", "decode 503", "decode error event 503", "decode 429", "prefill error event",
        "decode error event", "decode error event 400", "abort", "no finish", "no finish but done", "no done", "decode reset",
        "prefill reset", "garbage",
    ],
)  # fmt: skip
def test_a_failed_leg_ends_the_other_at_once_and_both_are_aborted(prefill, decode, kind, says):
    """The other leg here never answers: only the cancel ends it. Both engines hear of the end by rid."""
    attempt = Attempt(prefill, decode).run()
    other = attempt.prefill if prefill in (FROZEN, SILENT) else attempt.decode

    assert isinstance(attempt.error, kind)
    assert says in str(attempt.error)
    assert attempt.aborted == attempt.both_rids
    assert all(call.closed.is_set() for call in other.calls)


def test_a_lost_connection_names_the_engine_to_look_at():
    """The pair book takes that engine out at once."""
    attempt = Attempt(SILENT, wire("reset", 2)).run()

    assert isinstance(attempt.error, LegLost)
    assert attempt.error.engine == "decode-0"


def test_the_budget_ends_an_attempt_whose_prefill_hangs():
    """A frozen prefill once held requests for minutes; the budget names the hop and aborts both legs."""
    attempt = Attempt(FROZEN, FROZEN, budget_s=0.05).run()

    assert isinstance(attempt.error, OutOfTime)
    assert attempt.error.hop == "prefill"
    assert attempt.aborted == attempt.both_rids


def test_the_budget_names_decode_when_prefill_is_done():
    """Who spent the time is what the person on call asks first."""
    attempt = Attempt(decode=SILENT, budget_s=0.5).run()

    assert isinstance(attempt.error, OutOfTime)
    assert attempt.error.hop == "first_token"


def test_a_role_alone_is_no_first_token():
    """The head is held until there is content, so the budget still can end in a real status."""
    attempt = Attempt(decode=wire("silence", 1), budget_s=0.15).run()

    assert isinstance(attempt.error, OutOfTime)
    assert attempt.pieces == []


def test_an_open_stream_that_falls_silent_is_an_engine_failure():
    """After the first token the budget is met; silence has a limit of its own."""
    attempt = Attempt(decode=wire("silence", 2), stall_s=0.1).run()

    assert isinstance(attempt.error, EngineFailed)
    assert attempt.text.count("data: ") == 2 and attempt.progress.token_events == 1


def test_a_client_that_stops_reading_does_not_count_against_the_engine():
    """It holds a slot no longer than the stall limit, and is told apart from a silent engine."""
    attempt = Attempt(stall_s=0.1)
    attempt.slow_client = True
    attempt.run()

    assert isinstance(attempt.error, ClientGone)
    assert attempt.aborted == attempt.both_rids


def test_an_answer_without_any_content_is_still_an_answer():
    """A model may stop at once: its finish is its first sign."""
    attempt = Attempt(stop=list(ascii_lowercase)).run()

    assert attempt.error is None
    assert attempt.progress.token_events == 0 and attempt.progress.first_token_at is not None
    assert attempt.text.endswith("data: [DONE]\n\n")


def test_a_whole_answer_takes_prefills_end_as_its_first_token():
    """No token is visible in a non-streamed answer; the prefill leg answers when its token is computed and sent."""
    slow = {"settings": {"costs": replace(INSTANT, decode_s=0.1)}}
    attempt = Attempt(decode=slow, stream=False, budget_s=0.6, max_tokens=9, ignore_eos=True).run()
    progress = attempt.progress

    assert attempt.error is None
    assert progress.first_token_at == progress.prefill_done_at < progress.dispatched_at + 0.6
    assert progress.usage["completion_tokens"] == 9


def test_a_whole_answer_that_was_aborted_is_a_failure_under_status_200():
    """SGLang answers an aborted non-streamed request with 200 and the partial text."""
    attempt = Attempt(decode={"abort_after_tokens": 1}, stream=False).run()

    assert isinstance(attempt.error, EngineFailed)


def test_an_engine_that_is_not_there_is_a_lost_leg():
    """Connection refused is told as such, naming the engine."""

    async def scenario():
        async with stand_ins(prefill_0=FROZEN, decode_0={}) as legs:
            await legs["decode-0"].stand_in.stop()
            client = HttpClient(connect_timeout_s=1.0)
            clock = SystemClock()
            dispatcher = Dispatcher(client, clock, Rendezvous(random.Random(3)))
            pair = Pair(legs["prefill-0"].endpoint, legs["decode-0"].endpoint)
            body = compose(chat.parse(b'{"messages":[{"role":"user","content":"hi"}]}'), [], 4, "m")
            with pytest.raises(LegLost, match="decode-0"):
                await dispatcher.whole(pair, body, Limits(clock.monotonic() + 5, 5, 5), Progress())
            await dispatcher.drain()
            await client.close()

    asyncio.run(scenario())
