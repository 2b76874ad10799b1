"""data:image/...;base64 URIs. The size is known from the length, so the cap holds before a byte is decoded. Pure."""

from dataclasses import dataclass

import pybase64

from serving.access.fetched import Fetched, digest
from serving.lifted import Lifted, as_text, head_of
from toolkit.core.errors import InvalidRequest, TooLarge

_LONGEST_HEAD = 256
_PIECE = 1 << 20  # characters, a multiple of four


@dataclass(frozen=True, slots=True)
class Inline:
    """A data: URI whose head is right. begin: where its base64 starts; size: bytes that it must decode to."""

    uri: str | Lifted
    begin: int
    size: int


def parse(uri: str | Lifted, most_bytes: int) -> Inline:
    """Reads head and length only. Raises InvalidRequest(image_invalid), TooLarge(image_too_large)."""
    head = head_of(uri, _LONGEST_HEAD)
    comma = head.find(",")
    media_type, *parameters = head[5 : max(comma, 5)].split(";")
    if comma < 0 or not parameters or parameters[-1].strip().lower() != "base64":
        raise _miswritten("a data: URI must be data:image/...;base64,...")
    if not media_type.strip().lower().startswith("image/"):
        raise _miswritten("a data: URI must have an image/* media type.")
    begin = comma + 1
    size = (len(uri) - begin) * 3 // 4 - as_text(uri[max(begin, len(uri) - 2) :]).count("=")
    if size > most_bytes:
        raise TooLarge(f"the image has {size} bytes; the limit is {most_bytes}.", code="image_too_large")
    return Inline(uri, begin, size)


def decode(inline: Inline) -> Fetched:
    """The file and its digest: one job, so that a large image waits for a thread once.

    In pieces, because each is decoded under the interpreter lock. Raises InvalidRequest(image_invalid).
    """
    uri = inline.uri
    try:
        pieces = range(inline.begin, len(uri), _PIECE)
        data = b"".join(pybase64.b64decode(uri[at : at + _PIECE], validate=True) for at in pieces)
        if len(data) != inline.size:
            raise ValueError("padding in the middle")
    except ValueError as error:
        raise _miswritten("the data: URI is not valid base64.") from error
    return Fetched(data, digest(data))


def _miswritten(reason: str) -> InvalidRequest:
    return InvalidRequest(
        reason,
        code="image_invalid",
        action="Write the file as data:image/jpeg;base64,DATA (or png, webp, gif, avif): DATA in standard base64, without spaces or"
        " line breaks.",
    )
