"""The short way through whole events says the same as the splitter, in whatever cut they arrive."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.answer import StreamedAnswer


def event(end: str, **content) -> bytes:
    return f"data: {json.dumps(content)}".encode() + end.encode()


def delta(end: str, finish=None, **content) -> bytes:
    return event(end, choices=[{"delta": content, "finish_reason": finish}])


PIECES = [
    delta("\n\n", role="assistant", content=""),
    delta("\n\n", content="a"),
    delta("\r\n\r\n", content="b"),
    delta("\n\n", content=None),
    delta("\n\n", reasoning_content="c"),
    delta("\n\n", tool_calls=[{"index": 0}]),
    b": a comment\n\n",
    b'event: x\ndata: {"choices":\ndata: [{"delta": {"content": "two lines"}}]}\n\n',
    b"data: \n\n",
    b"\n\n",
    event("\n\n", choices=[], usage={"completion_tokens": 4, "prompt_tokens": 2}),
    delta("\n\n", "stop"),
    b"data: [DONE]\n\n",
    b"data: [DONE]\r\n\r\n",
]
TOKENS = {1, 2, 4, 5, 7}


@given(st.lists(st.integers(0, len(PIECES) - 1), max_size=12), st.data())
def test_tokens_are_counted_and_timed_whatever_the_cut(order, data):
    """Each token-bearing event has the time of the chunk that completed it."""
    stream = b"".join(PIECES[n] for n in order)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=8)) | {0, len(stream)})
    ends = [sum(len(PIECES[n]) for n in order[: k + 1]) for k in range(len(order))]
    answer = StreamedAnswer()

    for at, (begin, end) in enumerate(itertools.pairwise(cuts)):
        answer.feed(stream[begin:end], float(at))

    expected = [
        float(next(k for k, cut in enumerate(cuts[1:]) if cut >= ends[place]))
        for place, n in enumerate(order)
        if n in TOKENS
    ]
    assert answer.token_times == expected
    assert answer.ending().code == (None if 11 in order else "no_finish_reason")
    assert bool(answer.usage) == (10 in order)


@pytest.mark.parametrize("first", [b"", PIECES[1][:9]])
def test_several_events_in_one_chunk_are_several_tokens(first):
    """Tokens that came together have one time and are still counted one by one."""
    answer = StreamedAnswer()
    stream = PIECES[1] * 3 + PIECES[11]

    answer.feed(first, 1.0)
    answer.feed(stream[len(first) :], 2.0)

    assert answer.token_times == [2.0, 2.0, 2.0]
    assert answer.finish_reason == "stop"
