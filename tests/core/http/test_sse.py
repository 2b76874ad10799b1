"""Events come out whole, exact and once, however the stream is cut."""

import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.core.http.errors import ProtocolViolation
from toolkit.core.http.sse import Event, EventSplitter

pure = settings(deadline=None, derandomize=True, database=None)  # the same examples on every run

line_end = st.sampled_from([b"\n", b"\r\n"])
lines = st.sampled_from(
    [b"data: {}", b"data:x", b"data", b": ping", b"event: a", b"data:  two", b"id: 1", b"", b"data: a\rb"]
)
streams = st.lists(st.tuples(lines, line_end).map(b"".join), max_size=30).map(b"".join)
cuts = st.lists(st.integers(0, 1000), max_size=30)


def expected(stream: bytes) -> tuple[list[Event], bytes]:
    """The same from the definition, a line at a time."""
    events: list[Event] = []
    raw, data = b"", []
    for line in re.findall(rb"[^\n]*\n", stream):
        raw += line
        text = line.rstrip(b"\n").removesuffix(b"\r")
        if not text:
            events.append(Event(raw, b"\n".join(data)))
            raw, data = b"", []
        elif text == b"data" or text.startswith(b"data:"):
            data.append(text[5:].removeprefix(b" "))
    return events, stream[len(b"".join(event.raw for event in events)) :]


@pure
@given(streams, cuts, st.binary(max_size=5))
def test_events_do_not_depend_on_the_cuts(stream: bytes, cuts: list[int], tail: bytes) -> None:
    """Every cut gives the events of the definition, and events and rest are exactly the stream."""
    stream += tail
    marks = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    splitter = EventSplitter()

    got = [event for a, b in pairwise(marks) for event in splitter.feed(stream[a:b])]

    assert (got, splitter.pending()) == expected(stream)
    assert b"".join(event.raw for event in got) + splitter.pending() == stream


def test_an_event_is_given_with_its_last_byte() -> None:
    """No event waits for the next one."""
    splitter = EventSplitter()

    assert splitter.feed(b"data: 1\n") == []
    assert splitter.feed(b"\n") == [Event(b"data: 1\n\n", b"1")]
    assert splitter.feed(b"data: 2\r\n\r") == []
    assert splitter.feed(b"\n") == [Event(b"data: 2\r\n\r\n", b"2")]


@pytest.mark.parametrize(
    ("raw", "data"),
    [
        (b"data: [DONE]\n\n", b"[DONE]"),
        (b"data:[DONE]\r\n\r\n", b"[DONE]"),
        (b": keep-alive\n\n", b""),
        (b"event: x\ndata: a\ndata: b\n\n", b"a\nb"),
        (b"data: a\rb\n\n", b"a\rb"),
        (b"database: x\n\n", b""),
        (b"\n", b""),
    ],
)
def test_data(raw: bytes, data: bytes) -> None:
    """The data lines of an event, joined; one leading space dropped."""
    assert EventSplitter().feed(raw) == [Event(raw, data)]


def test_a_cut_event_is_pending() -> None:
    """What a truncated stream leaves is not an event."""
    splitter = EventSplitter()

    assert [event.data for event in splitter.feed(b"data: 1\n\ndata: 2\n")] == [b"1"]
    assert splitter.pending() == b"data: 2\n"


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_an_endless_event_is_refused(step: int) -> None:
    """A peer without blank lines cannot fill the memory, in small pieces or in one."""
    stream = b"data: x\n" * 100
    splitter = EventSplitter(max_event_bytes=100)

    def feed_all() -> None:
        for at in range(0, len(stream), step):
            splitter.feed(stream[at : at + step])

    with pytest.raises(ProtocolViolation) as caught:
        feed_all()
    assert caught.value.phase == "body"


def test_many_small_events_are_no_big_one() -> None:
    """The limit is per event."""
    assert len(EventSplitter(max_event_bytes=100).feed(b"data: x\n\n" * 100)) == 100
