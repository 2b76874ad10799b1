"""A request is written exactly as asked, or refused."""

import pytest

from toolkit.core.http.request import build_request
from toolkit.core.http.url import Origin


def test_bytes_on_the_wire() -> None:
    """Host and content-length are added; the caller's headers keep their order and case."""
    request = build_request("POST", "http://h:1/a?b=c#d", [("X-A", "1"), ("accept", "é")], [b"ab", b"", b"c"])

    assert b"".join(
        request.wire
    ) == "POST /a?b=c HTTP/1.1\r\nhost: h:1\r\nX-A: 1\r\naccept: é\r\ncontent-length: 3\r\n\r\nabc".encode(
        "latin-1"
    )
    assert request.origin == Origin(False, "h", 1)


def test_big_pieces_are_not_copied() -> None:
    """A megabyte of image is written from where it lies; small neighbours share a write."""
    big = b"x" * 1_000_000

    wire = build_request("POST", "http://h/", body=[b"{", big, b"}", b"}"]).wire

    assert wire[1] is big
    assert [wire[0][-1:], wire[2]] == [b"{", b"}}"]


@pytest.mark.parametrize(
    ("url", "origin", "path", "host"),
    [
        ("http://h", Origin(False, "h", 80), "/", "h"),
        ("https://H.x/y", Origin(True, "h.x", 443), "/y", "H.x"),
        ("http://[::1]:8000?q", Origin(False, "::1", 8000), "/?q", "[::1]:8000"),
    ],
)
def test_urls(url: str, origin: Origin, path: str, host: str) -> None:
    """Scheme, host and port choose the connection; path and query go on the wire."""
    request = build_request("GET", url)

    assert request.origin == origin
    assert b"".join(request.wire) == f"GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n".encode()


def test_a_given_host_is_kept() -> None:
    """A gateway may speak for another name."""
    assert build_request("GET", "http://h/", [("Host", "other")]).wire == (
        b"GET / HTTP/1.1\r\nHost: other\r\n\r\n",
    )


def test_an_empty_post_says_so() -> None:
    """Servers wait for, or refuse, a POST without a length."""
    assert b"content-length: 0" in build_request("POST", "http://h/").wire[0]


@pytest.mark.parametrize(
    ("method", "url", "headers"),
    [
        ("GET\r\nX: y", "http://h/", []),
        ("", "http://h/", []),
        ("CONNECT", "http://h/", []),
        ("GET", "http://h/\r\nX: y", []),
        ("GET", "http://h/a b", []),
        ("GET", "http://h/\x00", []),
        ("GET", "http://h/é", []),
        ("GET", "ftp://h/", []),
        ("GET", "/path", []),
        ("GET", "http://", []),
        ("GET", "http://user:secret@h/", []),
        ("GET", "http://h:99999/", []),
        ("GET", "http://h:0/", []),
        ("GET", "http://[::1/", []),
        ("GET", "http://h/", [("X", "a\r\nY: b")]),
        ("GET", "http://h/", [("X", "a\nb")]),
        ("GET", "http://h/", [("X", "a\0")]),
        ("GET", "http://h/", [("X\r\nY", "a")]),
        ("GET", "http://h/", [("X Y", "a")]),
        ("GET", "http://h/", [("", "a")]),
        ("GET", "http://h/", [("X", "€")]),
        ("POST", "http://h/", [("Content-Length", "1")]),
        ("POST", "http://h/", [("transfer-encoding", "chunked")]),
    ],
)
def test_refused(method: str, url: str, headers: list[tuple[str, str]]) -> None:
    """Nothing that changes the meaning of the bytes reaches the wire."""
    with pytest.raises(ValueError, match=r"\S"):
        build_request(method, url, headers)
