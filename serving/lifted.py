"""Data URIs of megabytes, left where they came: as bytes of the request's body instead of strings made by a parser.

Parsing 23 MB of JSON takes 35 ms, nearly all of it for one string that is only cut in pieces and decoded afterwards;
and it takes the memory of the string. So such strings are taken out of the body before it is parsed, by two searches
that run at the speed of memory.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

LEAST_BYTES = 65_536
"""Shorter URIs are parsed with the rest."""

_VALUE_BYTES = 100  # a list in a list takes 80, a dict of one pair 290 with three marks

_BEGIN = b'"data:image/'
_PIECE = 1 << 18


class Lifted:
    """The text of one JSON string without escapes, as a view of the body it came in. Slices are memory, not text.

    Compared by all bytes, hashed by samples: hashing all of it would take longer than the one comparison it saves.
    """

    __slots__ = ("_view",)

    def __init__(self, view: memoryview) -> None:
        self._view = view

    def __len__(self) -> int:
        return len(self._view)

    def __getitem__(self, part: slice) -> memoryview:
        return self._view[part]

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, Lifted):
            return self is other
        # Memory views compare item by item, bytes all at once.
        ours, theirs, parts = self._view, other._view, range(0, len(self._view), _PIECE)
        return len(ours) == len(theirs) and all(
            ours[at : at + _PIECE].tobytes() == theirs[at : at + _PIECE].tobytes() for at in parts
        )

    def __hash__(self) -> int:
        return hash(samples(self._view))


def samples(text: str | memoryview) -> tuple[int, str, str, str]:
    """What tells most long texts apart: length, beginning, middle, end."""
    middle = len(text) // 2
    return len(text), as_text(text[:256]), as_text(text[middle : middle + 256]), as_text(text[-256:])


def as_text(part: str | memoryview) -> str:
    """A part as a string. Bytes that are not ASCII are replaced, as no URI has them."""
    return part if isinstance(part, str) else str(part, "ascii", "replace")


def head_of(uri: str | Lifted, most: int) -> str:
    """The first characters."""
    return as_text(uri[:most])


@dataclass(frozen=True, slots=True)
class Light:
    """A body without its long data URIs: `text` is JSON with the string `names[i]` in place of `lifted[i]`."""

    body: bytes | bytearray
    text: bytes | bytearray
    names: Sequence[str]
    lifted: Sequence[Lifted]

    @property
    def values(self) -> int:
        """How many values parsing may make, at most."""
        return len(self.text) - len(self.text.translate(None, b"[{,:"))

    @property
    def values_bytes(self) -> int:
        """Memory that parsing may take at most besides the text: 40 MB of `[],` become a gigabyte of empty lists."""
        return _VALUE_BYTES * self.values


def lighten(body: bytes | bytearray, mark: str | None = None) -> Light:
    """Takes the long data URIs out. What is not JSON stays as wrong as it was.

    mark: what their names begin with, that nobody can have sent; else drawn.
    """
    view = memoryview(body)
    pieces: list[memoryview] = []
    found: list[Lifted] = []
    kept = at = 0
    while (begin := body.find(_BEGIN, at)) >= 0:
        end = body.find(b'"', begin + 1)
        at = begin + len(_BEGIN)
        escaped = begin > 0 and body[begin - 1] == 0x5C
        if end - begin < LEAST_BYTES or escaped or body.find(b"\\", begin, end) >= 0:
            continue
        pieces.append(view[kept:begin])
        found.append(Lifted(view[begin + 1 : end]))
        kept = at = end + 1
    if not found:
        return Light(body, body, (), ())
    pieces.append(view[kept:])
    mark = mark or f"lifted:{secrets.token_hex(16)}:"
    names = [f"{mark}{place}" for place in range(len(found))]
    text = bytearray(pieces[0])
    for each, piece in zip(names, pieces[1:], strict=True):
        text += b'"%b"' % each.encode()
        text += piece
    return Light(body, text, names, found)
