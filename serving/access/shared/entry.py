"""A prepared image as bytes in a store that others write to, and back. Pure.

    magic and version (5) | HMAC-SHA-256 of all the rest and of the key (32) | sizes (28) | two names | the file

The key is under the HMAC, so a value can only be found where its writer put it. With an empty secret the HMAC is a
checksum: it finds damage, not forgery. So what is found is held to everything that this gateway knows about its own
pictures before it is used: sizes and tokens by the model's grid, the file by the walk that uploads go through.
"""

import hmac
import struct
from typing import get_args

import pybase64

from serving.access.formats import Format, MalformedError, walk
from serving.access.grid import ImageGrid
from serving.access.picture import Prepared
from serving.config import Handover
from toolkit.core.errors import ToolkitError
from toolkit.core.sample import ImageRecord

MAGIC = b"MMSI\x01"
"""Four letters and the version of this layout."""

_SEAL_BYTES = 32
_SIZES = struct.Struct("!IIQIII")
_NAMES = frozenset(name.lower() for name in get_args(Format))
_HANDED_OVER: frozenset[str] = frozenset(get_args(Handover))


class ForeignValue(ValueError):
    """What was found is damaged, of another version, or nothing that this gateway would have made."""


def pack(key: bytes, prepared: Prepared, secret: bytes) -> bytes:
    """The value to store under the key."""
    head, _, text = prepared.data_uri.partition(";base64,")
    record = prepared.record
    sizes = _SIZES.pack(
        record.width,
        record.height,
        record.size_bytes,
        record.tokens,
        record.prepared_width,
        record.prepared_height,
    )
    names = _name(record.format) + _name(head.removeprefix("data:image/"))
    body = b"".join((sizes, names, pybase64.b64decode(text, validate=True)))
    return b"".join((MAGIC, _seal(key, body, secret), body))


def unpack(key: bytes, value: bytes, size_bytes: int, secret: bytes, grid: ImageGrid) -> Prepared:
    """The picture that was stored under the key for a source of `size_bytes`. Raises ForeignValue."""
    if not value.startswith(MAGIC):
        raise ForeignValue("not an image of this version")
    view = memoryview(value)[len(MAGIC) :]
    seal, body = view[:_SEAL_BYTES], view[_SEAL_BYTES:]
    if not hmac.compare_digest(seal, _seal(key, body, secret)):
        raise ForeignValue(
            "the checksum does not fit: damaged, of another key, or sealed with another secret"
        )
    try:
        width, height, stored_bytes, tokens, prepared_width, prepared_height = _SIZES.unpack_from(body)
        source_format, at = _named(body, _SIZES.size)
        handover, at = _named(body, at)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ForeignValue("it ends inside its head") from error
    record = ImageRecord(
        width, height, stored_bytes, source_format, tokens, prepared_width, prepared_height, origin="data"
    )
    file = bytes(body[at:])
    if stored_bytes != size_bytes:
        raise ForeignValue("it was made of another file")
    _check(record, handover, file, grid)
    return Prepared(f"data:image/{handover};base64,{pybase64.b64encode_as_string(file)}", record)


def _check(record: ImageRecord, handover: str, file: bytes, grid: ImageGrid) -> None:
    """Raises ForeignValue unless this gateway might have made it: a checksum alone keeps no writer out."""
    if record.format not in _NAMES or handover not in _HANDED_OVER or not record.width * record.height:
        raise ForeignValue("no kind of picture that is made here")
    target = (record.prepared_width, record.prepared_height)
    try:
        fits = target == grid.target_size(record.width, record.height)
        fits = fits and record.tokens == grid.tokens(record.width, record.height)
    except ToolkitError as error:
        raise ForeignValue(f"no size that is taken here: {error.message}") from error
    if not fits or not _is_picture(file, handover, target):
        raise ForeignValue("not what the served model's grid makes of such an image")


def _is_picture(file: bytes, handover: str, size: tuple[int, int]) -> bool:
    """Whether it is a file of this kind and size, upright, and none built to waste a decoder's time."""
    width, height = size
    if handover == "ppm":
        head = b"P6\n%d %d\n255\n" % size
        return file.startswith(head) and len(file) == len(head) + 3 * width * height
    try:
        made = walk(file)
    except MalformedError:
        return False
    return (
        made.format.lower() == handover
        and (made.width, made.height, made.orientation) == (width, height, 1)
        and made.scans <= 1
    )


def _seal(key: bytes, body: bytes | memoryview, secret: bytes) -> bytes:
    sealed = hmac.new(secret, MAGIC + len(key).to_bytes(2, "big") + key, "sha256")
    sealed.update(body)
    return sealed.digest()


def _name(text: str) -> bytes:
    raw = text.encode("ascii")
    return bytes((len(raw),)) + raw


def _named(body: memoryview, at: int) -> tuple[str, int]:
    """A short word and where it ends."""
    end = at + 1 + body[at]
    return bytes(body[at + 1 : end]).decode("ascii"), end
