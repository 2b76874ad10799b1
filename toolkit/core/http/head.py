"""The head of an answer: status, headers, and whether the connection may live on."""

from dataclasses import dataclass

import httptools

from toolkit.core.http.errors import ProtocolViolation

MAX_HEAD_BYTES = 65_536  # all heads of one answer together, interim ones included


@dataclass(frozen=True, slots=True)
class Head:
    """headers: lower-case names, in order, repeated ones repeated."""

    status: int
    headers: list[tuple[str, str]]
    keep_alive: bool

    def header(self, name: str) -> str | None:
        """The first header of that (lower-case) name."""
        return next((value for key, value in self.headers if key == name), None)


class _Collected:
    def __init__(self) -> None:
        self.headers: list[tuple[str, str]] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.decode("ascii").lower(), value.decode("latin-1").strip(" \t")))


def parse_head(raw: bytes) -> Head:
    """`raw` is one head, blank line included. Raises ProtocolViolation when it is not well-formed."""
    collected = _Collected()
    parser = httptools.HttpResponseParser(collected)
    try:
        parser.feed_data(raw)
    except httptools.HttpParserUpgrade as error:
        raise ProtocolViolation("the peer switched protocols, which was not asked for") from error
    except (httptools.HttpParserError, UnicodeDecodeError) as error:
        raise ProtocolViolation(f"the head of the answer is malformed: {error}") from error
    headers = collected.headers
    tokens = {
        token.strip().lower() for name, value in headers if name == "connection" for token in value.split(",")
    }
    if parser.get_http_version() == "1.0":
        keep_alive = "keep-alive" in tokens and "close" not in tokens
    else:
        keep_alive = "close" not in tokens
    return Head(parser.get_status_code(), headers, keep_alive)
