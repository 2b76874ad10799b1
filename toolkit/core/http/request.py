"""A request as the bytes to write."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from toolkit.core.http.url import Origin, parse_url

Headers = Sequence[tuple[str, str]]
Data = bytes | memoryview
JSON_HEADERS: Headers = (("content-type", "application/json"),)

IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"})  # RFC 9110 section 9.2.2
JOIN_BELOW_BYTES = 16_384  # copying less than this is cheaper than one more system call

_token = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+").fullmatch  # RFC 9110 section 5.6.2
_bad_in_value = re.compile(r"[\r\n\x00]").search
_COMPUTED = frozenset({"content-length", "transfer-encoding"})
_BODY_EXPECTED = frozenset({"POST", "PUT", "PATCH"})  # these say `content-length: 0` for an empty body


@dataclass(frozen=True, slots=True)
class Request:
    """Built once, sendable any number of times. wire: the bytes to write, in order."""

    method: str
    origin: Origin
    wire: tuple[Data, ...]

    @property
    def idempotent(self) -> bool:
        return self.method in IDEMPOTENT


def build_request(method: str, url: str, headers: Headers = (), body: Data | Sequence[Data] = b"") -> Request:
    """The request's bytes, with `host` (unless given) and `content-length` added; big pieces are not copied.

    Raises ValueError for what would change the meaning of the bytes: line breaks in the method, the URL or a
    header, a name that is not a token, and framing headers, which are computed here.
    """
    if not _token(method) or method == "CONNECT":
        raise ValueError(f"method {method!r} cannot be sent.")
    target = parse_url(url)
    pieces = [body] if isinstance(body, bytes | memoryview) else [piece for piece in body if piece]
    size_bytes = sum(map(len, pieces))
    lines = [f"{method} {target.path} HTTP/1.1"]
    host_given = False
    for name, value in headers:
        if not _token(name) or _bad_in_value(value):
            raise ValueError(f"header {name!r} has a line break, a NUL, or a name that is not a token.")
        lower = name.lower()
        if lower in _COMPUTED:
            raise ValueError(f"header {name!r} is computed from the body; leave it out.")
        host_given = host_given or lower == "host"
        lines.append(f"{name}: {value}")
    if not host_given:
        lines.insert(1, f"host: {target.authority}")
    if size_bytes or method in _BODY_EXPECTED:
        lines.append(f"content-length: {size_bytes}")
    lines.append("\r\n")
    try:
        head = "\r\n".join(lines).encode("latin-1")
    except UnicodeEncodeError as error:
        raise ValueError("a header value has characters outside latin-1.") from error
    return Request(method, target.origin, _join_small([head, *pieces]))


def _join_small(pieces: list[Data]) -> tuple[Data, ...]:
    joined: list[Data] = []
    run: list[Data] = []
    run_bytes = 0
    for piece in pieces:
        if run and run_bytes + len(piece) > JOIN_BELOW_BYTES:
            joined.append(_joined(run))
            run, run_bytes = [], 0
        run.append(piece)
        run_bytes += len(piece)
    joined.append(_joined(run))
    return tuple(joined)


def _joined(run: list[Data]) -> Data:
    return run[0] if len(run) == 1 else b"".join(run)  # joining one view would copy it
