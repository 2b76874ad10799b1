"""What is stored comes back as it was, and nothing else comes back at all."""

import struct
from typing import get_args

import pybase64
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.access.grids import QwenGrid
from serving.access.paint import paint
from serving.access.picture import Prepared, examine, wrap
from serving.access.shared.entry import MAGIC, ForeignValue, _seal, pack, unpack
from serving.config import AccessConfig, Handover
from tests.serving.access import pictures
from tests.serving.access.pictures import saved

GRID = QwenGrid("qwen2_vl", 28, 56 * 56, 1280 * 28 * 28)
LIMITS = AccessConfig()
KEY = bytes(range(64))
SOURCE = saved(pictures.photo(320, 200), "JPEG")
SEAL_ENDS = len(MAGIC) + 32


def prepared(handover: Handover = "png", source: bytes = SOURCE) -> Prepared:
    task = examine(source, LIMITS, GRID)
    return wrap(paint(source, task.header, task.target, handover, "auto").file, task, handover)


PICTURE = prepared()
VALUE = pack(KEY, PICTURE, b"")


def refused(value: bytes, key: bytes = KEY, size: int = len(SOURCE), secret: bytes = b"") -> str:
    with pytest.raises(ForeignValue) as told:
        unpack(key, value, size, secret, GRID)
    return str(told.value)


def forged(body: bytes) -> bytes:
    """A value with a seal that fits: anybody can make it where no secret is set."""
    return MAGIC + _seal(KEY, body, b"") + body


def with_file(file: bytes, handover: str = "png") -> bytes:
    uri = f"data:image/{handover};base64,{pybase64.b64encode_as_string(file)}"
    return pack(KEY, Prepared(uri, PICTURE.record), b"")


@pytest.mark.parametrize("handover", get_args(Handover))
@pytest.mark.parametrize("secret", [b"", b"a secret of ours"])
def test_what_is_stored_comes_back(handover: Handover, secret: bytes) -> None:
    """For every way of handing over; the picture travels as bytes, not as base64."""
    picture = prepared(handover)
    value = pack(KEY, picture, secret)

    assert unpack(KEY, value, len(SOURCE), secret, GRID) == picture
    assert len(value) < len(picture.data_uri) * 3 / 4 + 100


def test_a_value_counts_only_where_its_writer_put_it() -> None:
    """Renamed, of another source, of another secret."""
    assert "of another key" in refused(VALUE, key=bytes(64))
    assert "another file" in refused(VALUE, size=len(SOURCE) + 1)
    assert "another secret" in refused(VALUE, secret=b"mine")
    assert "another secret" in refused(pack(KEY, PICTURE, b"mine"))


def test_another_version_is_not_read() -> None:
    assert "version" in refused(VALUE[:4] + b"\x02" + VALUE[5:])


@pytest.mark.parametrize("length", [0, 1, 5, 36, 37, 60, 70, 80, len(VALUE) - 1])
def test_what_is_cut_off_is_not_used(length: int) -> None:
    refused(VALUE[:length])


@given(at=st.integers(0, len(VALUE) - 1), bit=st.integers(0, 7))
def test_one_wrong_bit_is_found(at: int, bit: int) -> None:
    damaged = bytearray(VALUE)
    damaged[at] ^= 1 << bit
    refused(bytes(damaged))


@given(body=st.binary(max_size=200))
def test_nonsense_with_a_seal_that_fits_is_refused(body: bytes) -> None:
    """It ends in ForeignValue and nothing else, however it is cut."""
    refused(forged(body))
    refused(forged(VALUE[SEAL_ENDS : SEAL_ENDS + 40] + body))


@given(place=st.integers(0, 5), value=st.integers(0, 2**32 - 1))
def test_other_sizes_with_a_seal_that_fits_are_refused(place: int, value: int) -> None:
    """The model's grid decides what a source of some size becomes, and its tokens: no writer does.

    Only the source's own size is taken on trust, where it makes the same picture.
    """
    sizes = list(struct.unpack_from("!IIQIII", VALUE, SEAL_ENDS))
    if sizes[place] == value:
        return
    sizes[place] = value
    body = struct.pack("!IIQIII", *sizes) + VALUE[SEAL_ENDS + 28 :]
    try:
        found = unpack(KEY, forged(body), len(SOURCE), b"", GRID)
    except ForeignValue:
        return
    assert place in (0, 1)
    assert found.data_uri == PICTURE.data_uri and found.record.tokens == PICTURE.record.tokens


@pytest.mark.parametrize(
    ("file", "handover"),
    [
        (saved(pictures.photo(308, 196), "GIF"), "gif"),
        (saved(pictures.photo(308, 196), "JPEG"), "png"),
        (saved(pictures.photo(308, 196), "JPEG", progressive=True), "jpeg"),
        (saved(pictures.photo(308, 196), "JPEG", exif=pictures.with_orientation(3)), "jpeg"),
        (saved(pictures.photo(3080, 1960), "JPEG"), "jpeg"),
        (saved(pictures.photo(308, 196), "PPM") + b"more", "ppm"),
        (saved(pictures.photo(308, 196), "PPM")[:-1], "ppm"),
        (b"<svg/>", "svg"),
        (b"", "png"),
    ],
    ids=["gif", "disguised", "many scans", "turned", "too large", "too long", "too short", "svg", "nothing"],
)
def test_a_file_that_is_never_made_here_is_not_handed_to_an_engine(file: bytes, handover: str) -> None:
    assert (PICTURE.record.prepared_width, PICTURE.record.prepared_height) == (308, 196)
    refused(with_file(file, handover))


def test_a_source_format_that_is_not_taken_is_refused() -> None:
    """It would become a metric's label."""
    body = bytearray(VALUE[SEAL_ENDS:])
    body[29:33] = b"evil"
    assert "kind" in refused(forged(bytes(body)))
