"""Whatever an engine or the fallback endpoint answers, a request ends in one typed outcome and in one line of the journal."""

import asyncio
import contextlib
import logging
from itertools import product

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.access.breaker import Breaker
from serving.choices import stream_all, whole_all
from serving.fallback import RULE
from serving.stream import StreamReader, read_whole
from tests.serving.rig import chat, records, rig
from toolkit.core.errors import Busy, EngineFailed, InvalidRequest

DEEP = orjson.loads(b"[" * 1000 + b"]" * 1000)
VALUES = (None, -7, 1e300, "x", [1], {"a": [1]}, DEEP)
PLACES = ("all", "id", "error", "choices", "choice", "delta", "finish_reason", "usage", "prompt_tokens", "completion_tokens")  # fmt: skip
CASES = tuple(product(PLACES, range(len(VALUES))))
EACH = 3
"""Cases of which one run takes one; the runs together take all, and the pure reading below is asked for any JSON."""
FINE = b'{"choices": [{"finish_reason": "stop"}]}'


def written(document):
    """orjson writes less deep documents than it reads."""
    if document is DEEP:
        return b"[" * 1000 + b"]" * 1000
    if isinstance(document, dict):
        return b"{%s}" % b",".join(orjson.dumps(key) + b":" + written(one) for key, one in document.items())
    if isinstance(document, list):
        return b"[%s]" % b",".join(map(written, document))
    return orjson.dumps(document)


def answer(place, value, stream):
    """A chat completion with the value in one place."""
    text = {"role": "assistant", "content": "hi"}
    choice = {"index": 0, "delta" if stream else "message": text, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1}
    document = {"id": "a", "choices": [choice], "usage": usage}
    if place == "all":
        document = value
    elif place == "choice":
        document["choices"] = [value]
    elif place == "delta":
        choice["delta" if stream else "message"] = value
    elif place == "finish_reason":
        choice["finish_reason"] = value
    elif place in usage:
        usage[place] = value
    else:
        document[place] = value
    return b"data: " + written(document) + b"\n\ndata: [DONE]\n\n" if stream else written(document)


class Said:
    """An answer of an upstream, in memory."""

    def __init__(self, status, body, stream):
        self.status = status
        self._body = body
        self._type = "text/event-stream" if stream else "application/json"

    def header(self, name):
        return self._type if name == "content-type" else None

    async def chunks(self):
        yield self._body, asyncio.get_running_loop().time()

    async def read(self, limit=None):
        return self._body

    def close(self):
        pass


def scripted(legs, of):
    """of: what a decode, or the fallback endpoint, answers; None: a failure."""

    async def post(name, base_url, pieces, headers=()):
        if name.startswith("prefill"):
            return Said(200, FINE, stream=False)
        body, stream = of(name)
        return Said(200, body, stream) if body is not None else Said(500, b"{}", stream=False)

    legs.post = post


@pytest.mark.parametrize("by_fallback", [False, True])
@pytest.mark.parametrize(("stream", "n", "first"), [(True, 1, 0), (False, 1, 1), (True, 2, 2), (False, 2, 0)])
def test_nonsense_in_an_answer_is_a_typed_outcome_and_one_line_of_the_journal(
    tmp_path, caplog, stream, n, first, by_fallback
):
    """Every value in every place of the protocol."""
    configured = {"retry": {"max_attempts": 1}, "fallback": {"url": "http://127.0.0.1:9/v1"}}
    if not by_fallback:
        del configured["fallback"]
    now = [b""]
    cases = CASES[first::EACH]

    async def scenario():
        async with rig(tmp_path, configured) as made:
            scripted(made.gateway.dispatcher._legs, lambda _: (None if by_fallback else now[0], stream))
            scripted(made.gateway.fallback._legs, lambda _: (now[0], stream))
            for place, index in cases:
                now[0] = answer(place, VALUES[index], stream)
                await made.prove()
                made.gateway.fallback._breaker = Breaker(RULE)
                exchange = await made.ask(chat(stream, n=n))
                assert exchange.ended, (place, index)

    with caplog.at_level(logging.ERROR, "toolkit.gateway"):
        asyncio.run(scenario())
    lines = records(tmp_path)

    assert not [one.message for one in caplog.records if "inside the gateway" in one.message]
    assert not [one.message for one in caplog.records if "in the journal but" in one.message]
    assert len(lines) == len(cases)
    assert {line["outcome"] for line in lines} <= {"completed", "engine_failed", "rejected", "shed"}
    assert {line["outcome"] for line in lines} >= {"completed", "engine_failed"}


NONSENSE = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["choices", "delta", "finish_reason", "usage", "error", "id", "prompt_tokens", "completion_tokens", "code"]),
        inner,
        max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=50, deadline=None)
@given(NONSENSE)
def test_any_json_is_read_and_merged_or_refused_with_a_typed_error(document):
    """As one choice, and as one of several."""
    body = orjson.dumps(document)

    async def whole(_):
        read_whole("d", body)
        return body

    async def streamed(_, forward):
        reader = StreamReader("d")
        reader.read(body)
        await forward(b"data: " + body + b"\n\n")

    async def forward(_):
        pass

    for run in (whole_all(2, whole), stream_all(2, streamed, forward)):
        with contextlib.suppress(EngineFailed, InvalidRequest, Busy):
            asyncio.run(run)


def test_a_request_that_the_metrics_cannot_take_is_in_the_journal(tmp_path, caplog):
    """The client has its answer, the journal its line; the failure is told once."""

    async def scenario():
        async with rig(tmp_path) as made:

            def broken(sample, gaps_s):
                raise ValueError("counters can only go up")

            made.gateway.telemetry.sample = broken
            return [(await made.ask()).status for _ in range(3)]

    assert asyncio.run(scenario()) == [200, 200, 200]
    assert [line["outcome"] for line in records(tmp_path)] == ["completed"] * 3
    assert sum("not in all metrics" in one.message for one in caplog.records) == 1
