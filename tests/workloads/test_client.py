"""One request over real sockets: what is timed, and which endings are failures."""

import asyncio
import json

import pytest

from toolkit.core.clock import SystemClock
from toolkit.core.http.client import HttpClient
from toolkit.core.plan import PlannedRequest
from toolkit.core.sample import SloClass, WorkloadClass
from workloads.client import ChatCaller
from workloads.prepare import Prepared
from workloads.record import LoadOutcome, LoadSample

PLANNED = PlannedRequest(4, 1.5, WorkloadClass.TEXT_ONLY, SloClass.STANDARD, "hello", (), 8)


def event(payload):
    return b"data: " + json.dumps(payload).encode() + b"\n\n"


def delta(finish=None, **content):
    return event({"choices": [{"delta": content, "finish_reason": finish}]})


ROLE, TOKEN, FINISH, DONE = (
    delta(role="assistant", content=""),
    delta(content="a"),
    delta("stop"),
    b"data: [DONE]\n\n",
)
ERROR = event({"error": {"message": "decode died", "code": "engine_failed"}})


def ask(
    url: str, planned: PlannedRequest = PLANNED, timeout_s: float = 10.0, cut_off_after_s: float | None = None
) -> LoadSample:
    async def main() -> LoadSample:
        client, clock = HttpClient(), SystemClock()
        caller = ChatCaller(client, url, clock, timeout_s)
        body = json.dumps({"stream": planned.stream}).encode()
        ended = asyncio.get_running_loop().create_future()
        caller.begin(
            Prepared(planned, (("x-slo-class", "standard"),), body), clock.monotonic(), ended.set_result
        )
        try:
            if cut_off_after_s is not None:
                await asyncio.sleep(cut_off_after_s)
                caller.cut_off()
                assert ended.done(), "records are handed in at once"
            return await ended
        finally:
            await client.close()

    return asyncio.run(main())


def test_every_token_event_is_timed_and_a_role_is_no_token(chat_server, scripts):
    """A role-only chunk starts no clock: TTFT is that of the first content, and gaps are between content."""
    chat_server.script = lambda body: scripts([ROLE, TOKEN, TOKEN, TOKEN, FINISH, DONE], pause_s=0.01)

    sample = ask(chat_server.url)

    assert sample.outcome is LoadOutcome.COMPLETED
    assert (sample.index, sample.intended_s, sample.request_id) == (4, 1.5, "r1")
    assert len(sample.token_times_s) == 3
    assert sample.sent_s <= sample.first_byte_s <= sample.first_token_s <= sample.ended_s
    assert list(sample.token_times_s) == sorted(sample.token_times_s)


def test_usage_counts_tokens_where_the_server_gives_it(chat_server, scripts):
    """Chunks of several tokens are counted by the server, not by chunk."""
    used = event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 9}})
    chat_server.script = lambda body: scripts([TOKEN, FINISH, used, DONE])

    sample = ask(chat_server.url)

    assert (sample.tokens, sample.prompt_tokens, len(sample.token_times_s)) == (9, 7, 1)


@pytest.mark.parametrize(
    ("script", "outcome", "code", "status"),
    [
        (
            {"pieces": [b'{"error":{"message":"full","code":"queue_full"}}'], "status": 429},
            "refused",
            "queue_full",
            429,
        ),
        ({"pieces": [b"<html>"], "status": 503}, "refused", "http_503", 503),
        ({"pieces": [ROLE, ERROR]}, "broken", "engine_failed", 200),
        ({"pieces": [ROLE, TOKEN, ERROR, DONE]}, "broken", "engine_failed", 200),
        ({"pieces": [TOKEN, FINISH, ERROR]}, "broken", "engine_failed", 200),
        ({"pieces": [event({"error": "oops"})]}, "broken", "error_event", 200),
        ({"pieces": [TOKEN, DONE]}, "broken", "no_finish_reason", 200),
        ({"pieces": []}, "broken", "no_finish_reason", 200),
        ({"pieces": [TOKEN, delta("abort"), DONE]}, "broken", "engine_abort", 200),
        ({"pieces": [TOKEN, b"data: {nonsense\n\n", FINISH]}, "broken", "bad_event", 200),
        ({"pieces": [b"data: [1]\n\n", FINISH]}, "broken", "bad_event", 200),
        ({"pieces": [TOKEN, FINISH, DONE], "cut": True}, "broken", "truncated", 200),
        ({"pieces": [TOKEN, b'data: {"choi'], "cut": True}, "broken", "truncated", 200),
        ({"pieces": [TOKEN], "hang": True}, "broken", "client_timeout", 200),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_each_bad_ending_has_its_code(chat_server, scripts, script, outcome, code, status):
    """An answer under HTTP 200 is a failure when it carries an error, is cut, or never says why it ended."""
    chat_server.script = lambda body: scripts(**script)

    sample = ask(chat_server.url, timeout_s=1.0 if script.get("hang") else 10.0)

    assert (sample.outcome.value, sample.code, sample.status) == (outcome, code, status)


def test_what_arrived_before_a_failure_is_kept(chat_server, scripts):
    """Tokens of a stream that broke later still have their times."""
    chat_server.script = lambda body: scripts([ROLE, TOKEN, TOKEN], cut=True)

    sample = ask(chat_server.url)

    assert not sample.completed
    assert len(sample.token_times_s) == 2


def test_a_refused_connection_is_unsent():
    """Nobody listens: the request never reached a server, and says so."""
    sample = ask("http://127.0.0.1:9")

    assert (sample.outcome, sample.code, sample.status) == (LoadOutcome.UNSENT, "connect_failed", None)


def test_a_request_that_is_cut_off_hands_in_its_record(chat_server, scripts):
    """When the run ends, an open request is recorded as unfinished instead of vanishing."""
    chat_server.script = lambda body: scripts([TOKEN], hang=True)

    sample = ask(chat_server.url, cut_off_after_s=0.2)

    assert (sample.outcome, sample.code) == (LoadOutcome.BROKEN, "unfinished")


def test_an_answer_without_streaming_has_its_first_token_at_its_end(chat_server, scripts):
    """A whole answer becomes readable when all of it is there."""
    whole = {
        "choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}],
        "usage": {"completion_tokens": 2},
    }
    chat_server.script = lambda body: scripts([json.dumps(whole).encode()], content_type="application/json")
    planned = PlannedRequest(0, 0.0, WorkloadClass.TEXT_ONLY, SloClass.STANDARD, "x", (), 8, stream=False)

    sample = ask(chat_server.url, planned)

    assert (sample.completed, sample.tokens, sample.finish_reason, sample.itl_s) == (True, 2, "stop", ())
    assert sample.first_token_s is not None


def test_a_record_survives_its_file(chat_server):
    """What samples.jsonl holds is enough to rebuild the record, to the microsecond."""
    sample = ask(chat_server.url)

    again = LoadSample.from_dict(json.loads(json.dumps(sample.to_dict())))

    assert again.to_dict().keys() == sample.to_dict().keys()
    assert (again.index, again.outcome, again.tokens) == (sample.index, sample.outcome, sample.tokens)
    assert again.token_times_s == pytest.approx(sample.token_times_s, abs=5e-6)
