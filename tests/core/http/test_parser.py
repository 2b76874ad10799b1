"""The answer parser gives the same answer however its bytes are cut."""

import contextlib
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.core.http.errors import ConnectionLost, ProtocolViolation, Truncated
from toolkit.core.http.head import MAX_HEAD_BYTES
from toolkit.core.http.parser import AnswerParser

pure = settings(deadline=None, derandomize=True, database=None)  # the same examples on every run


def feed(parser: AnswerParser, data: bytes, cuts: list[int]) -> bytes:
    marks = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return b"".join(parser.feed(data[a:b]) for a, b in pairwise(marks))


def chunked(pieces: list[bytes], extension: bytes = b"", trailers: bytes = b"") -> bytes:
    body = b"".join(b"%x%s\r\n%s\r\n" % (len(piece), extension, piece) for piece in pieces)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body + b"0\r\n" + trailers + b"\r\n"


STREAM = chunked(
    [b"data: {}\n\n", b"\r\n", b"0\r\n\r\n", b"x" * 300], b" ;a=b", b"Expires: never\r\nX: y\r\n"
)
PAYLOAD = b"data: {}\n\n\r\n0\r\n\r\n" + b"x" * 300

messages = st.one_of(
    st.lists(st.binary(min_size=1, max_size=40), max_size=6).map(
        lambda pieces: (chunked(pieces, b";q=1", b"A: b\r\n"), b"".join(pieces))
    ),
    st.binary(max_size=80).map(
        lambda body: (b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body), body)
    ),
)
cuts = st.lists(st.integers(0, 10_000), max_size=40)


@pure
@given(
    messages,
    cuts,
    st.lists(
        st.sampled_from([b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n"]),
        max_size=2,
    ),
)
def test_payload_does_not_depend_on_the_cuts(
    message: tuple[bytes, bytes], cuts: list[int], interim: list[bytes]
) -> None:
    """Any cut of any framed answer gives its payload, ends it exactly, and skips interim heads."""
    wire, payload = message
    parser = AnswerParser("GET")

    got = feed(parser, b"".join(interim) + wire, cuts)

    assert got == payload
    assert parser.head is not None
    assert parser.head.status == 200
    assert parser.done
    assert parser.reusable
    parser.eof()


def test_one_cut_at_every_byte() -> None:
    """Two reads give what one read gives, wherever the boundary falls."""
    for cut in range(len(STREAM) + 1):
        parser = AnswerParser("POST")

        assert feed(parser, STREAM, [cut]) == PAYLOAD, cut
        assert parser.reusable, cut


def test_byte_by_byte() -> None:
    """One byte per read is only slower."""
    parser = AnswerParser("GET")

    assert feed(parser, STREAM, list(range(len(STREAM)))) == PAYLOAD
    assert parser.reusable


@pure
@given(st.integers(0, len(STREAM) - 1), cuts)
def test_every_prefix_is_told_as_incomplete(stop: int, cuts: list[int]) -> None:
    """A connection that closes early is never taken for an end."""
    parser = AnswerParser("GET")
    feed(parser, STREAM[:stop], cuts)

    assert not parser.done
    with pytest.raises((ConnectionLost, Truncated)):
        parser.eof()


@pure
@given(messages, st.binary(min_size=1, max_size=20), cuts)
def test_what_follows_an_answer_is_kept_apart(
    message: tuple[bytes, bytes], junk: bytes, cuts: list[int]
) -> None:
    """Bytes after the end are not payload, and they end the connection's life."""
    wire, payload = message
    parser = AnswerParser("GET")

    assert feed(parser, wire + junk, cuts) == payload
    assert parser.done
    assert not parser.reusable


@pure
@given(st.binary(max_size=60), cuts)
def test_arbitrary_chunk_bytes_never_escape_the_error_tree(junk: bytes, cuts: list[int]) -> None:
    """Whatever follows a chunked head, only ProtocolViolation is raised."""
    parser = AnswerParser("GET")

    with contextlib.suppress(ProtocolViolation):
        feed(parser, b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + junk, cuts)


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 204), ("GET", 304), ("HEAD", 404)])
@pytest.mark.parametrize("framing", [b"Content-Length: 10\r\n", b"Transfer-Encoding: chunked\r\n", b""])
def test_answers_without_a_body(method: str, status: int, framing: bytes) -> None:
    """HEAD, 204 and 304 end with the head, whatever it says of a body."""
    parser = AnswerParser(method)
    parser.feed(b"HTTP/1.1 %d X\r\n%s\r\n" % (status, framing))

    assert parser.reusable


def test_until_close() -> None:
    """Without framing the body is all until the peer closes, and the connection ends with it."""
    parser = AnswerParser("GET")
    payload = parser.feed(b"HTTP/1.1 200 OK\r\n\r\nab") + parser.feed(b"cd")

    assert payload == b"abcd"
    assert not parser.done
    parser.eof()
    assert parser.done


@pytest.mark.parametrize(
    ("head", "reusable"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: x, Close\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n", True),
    ],
)
def test_whether_the_peer_keeps_the_connection(head: bytes, reusable: bool) -> None:
    """The version's default, unless the connection header says otherwise."""
    parser = AnswerParser("GET")
    parser.feed(head)

    assert parser.reusable is reusable


def test_headers_are_lower_case_in_order_and_repeated() -> None:
    """Nothing of a head is lost but the case of its names."""
    parser = AnswerParser("GET")
    parser.feed(
        b"HTTP/1.1 200 OK\r\nX-A: One \r\nSet-Cookie: a\r\nset-cookie: b\r\nEmpty:\r\nContent-Length: 0\r\n\r\n"
    )

    assert parser.head is not None
    assert parser.head.headers == [
        ("x-a", "One"), ("set-cookie", "a"), ("set-cookie", "b"), ("empty", ""), ("content-length", "0"),
    ]  # fmt: skip


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "wire",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 200 OK\n\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * MAX_HEAD_BYTES,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 4000,
        CHUNKED + b"g\r\n",
        CHUNKED + b"\r\n",
        CHUNKED + b"-1\r\n",
        CHUNKED + b"0x1\r\n",
        CHUNKED + b"1_0\r\n",
        CHUNKED + b" 5\r\n",
        CHUNKED + b"ffffffffffffffff1\r\n",
        CHUNKED + b"5" * 2000,
        CHUNKED + b"5;" + b"x" * 2000 + b"\r\n",
        CHUNKED + b"2\r\nabc\r\n",
        CHUNKED + b"2\r\nab\rX",
        CHUNKED + b"0\r\n" + b"a: b\r\n" * 20_000,
        CHUNKED + b"0\r\na: " + b"b" * 100_000,
    ],
    ids=lambda wire: repr(wire.removeprefix(CHUNKED)[:40]),
)  # fmt: skip
def test_violations(wire: bytes) -> None:
    """What is not HTTP/1.1, or passes a limit, is refused; in one read and in many."""
    with pytest.raises(ProtocolViolation):
        AnswerParser("GET").feed(wire)
    with pytest.raises(ProtocolViolation):
        feed(AnswerParser("GET"), wire, list(range(0, len(wire), 7)))
