"""AVIF: what its boxes and its AV1 head may claim, before any decoder sees them."""

import time

import numpy as np
import pytest
from PIL import AvifImagePlugin, Image

from serving.access.decode import decode
from serving.access.formats import walk
from serving.access.probe import probe
from serving.config import AccessConfig
from tests.serving.access import pictures
from tests.serving.access.avif_files import (
    FRAME,
    NOT_OWN_SIZE,
    Item,
    avif,
    box,
    full,
    grid,
    made_of,
    picture,
    sequence,
    size,
    unit,
)
from tests.serving.access.pictures import saved
from toolkit.core.errors import ToolkitError

LIMITS = AccessConfig()
BIG = 16384


def refusal(data: bytes) -> tuple[str, str]:
    """(code, message)"""
    with pytest.raises(ToolkitError) as caught:
        probe(data, LIMITS)
    return caught.value.code.code, caught.value.message


def test_a_plain_file_is_understood() -> None:
    """The builder of the other tests makes files that a walk accepts: what they refuse has one fault."""
    for reduced in (True, False):
        item = Item(content=sequence(64, 64, reduced=reduced) + unit(6, bytes([0b0001_0000]) + bytes(40)))
        assert (walk(avif(item)).width, walk(avif(item)).format) == (64, "AVIF")
    tiles = [picture(64, 64) for _ in range(4)]
    whole = Item(kind=b"grid", properties=(size(100, 128),), content=grid(2, 2, 100, 128))
    found = walk(avif(whole, *tiles, references=made_of(1, [2, 3, 4, 5])))
    assert (found.width, found.height) == (100, 128)


def test_one_thread_decodes_a_picture() -> None:
    """The decode pool owns the CPUs: the decoder starts no threads of its own."""
    assert AvifImagePlugin.DEFAULT_MAX_THREADS == 1


MANY_HIDDEN = unit(6, bytes(8)) * 500
FAULTS = {
    "size over the limit": (avif(picture(BIG, BIG)), "image_too_large", "16384x16384"),
    "stream larger than its claim": (
        avif(Item(content=sequence(BIG, BIG) + FRAME)), "image_invalid", "contradicts itself",
    ),
    "frame larger than its stream": (
        avif(Item(content=sequence(64, 64, reduced=False) + NOT_OWN_SIZE)), "image_invalid", "own size",
    ),
    "500 frames before the shown one": (
        avif(Item(content=sequence(64, 64) + MANY_HIDDEN + FRAME)), "image_invalid", "single AV1 frame",
    ),
    "two sequences": (
        avif(Item(content=sequence(64, 64) + sequence(BIG, BIG) + FRAME)), "image_invalid", "single AV1 frame",
    ),
    "transparency far larger than the picture": (
        avif(picture(64, 64), picture(8000, 8000)), "image_invalid", "far more pixels",
    ),
    "two sizes": (avif(Item(properties=(size(64, 64), size(BIG, BIG)))), "image_invalid", "two ispe"),
    "no size": (avif(Item(properties=())), "image_invalid", "without a size"),
    "bytes past the end of the file": (avif(Item(places=[(300, 1 << 20)])), "image_invalid", "cut off"),
    "the same bytes 4,000 times": (avif(Item(places=[(0, 400)] * 4000)), "image_invalid", "again and again"),
    "65,535 extents": (avif(Item(places=[(0, 0)] * 65535)), "image_invalid", "too many items"),
    "a million empty boxes": (avif(Item(), more=box(b"free") * 1_000_000), "image_invalid", "too many boxes"),
    "a grid of one tile used four times": (
        avif(
            Item(kind=b"grid", properties=(size(128, 128),), content=grid(2, 2, 128, 128)),
            picture(64, 64),
            references=made_of(1, [2, 2, 2, 2]),
        ),
        "image_invalid",
        "uses a tile twice",
    ),
    "a grid whose canvas is not its size": (
        avif(
            Item(kind=b"grid", properties=(size(64, 64),), content=grid(1, 1, 60000, 60000)),
            picture(64, 64),
            references=made_of(1, [2]),
        ),
        "image_invalid",
        "contradicts itself",
    ),
    "a grid without tiles": (
        avif(Item(kind=b"grid", content=grid(256, 256, 64, 64))), "image_invalid", "lacks tiles",
    ),
    "a film without a still": (
        box(b"ftyp", b"avis" + bytes(4) + b"avis") + box(b"moov", bytes(80)), "image_invalid", "no still picture",
    ),
    "two descriptions": (avif(Item(), more=full(b"meta")), "image_invalid", "twice"),
    "an MP4": (box(b"ftyp", b"isom" + bytes(4) + b"mp42") + box(b"moov"), "image_invalid", "not AVIF"),
    "a HEIC": (avif(Item(kind=b"hvc1"), brand=b"heic"), "image_invalid", "not AVIF"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_refused_cheaply(name: str) -> None:
    """Each by its name, in under 50 ms of CPU, and without the decoder."""
    data, code, words = FAULTS[name]
    walk(avif(Item()))  # everything is imported

    started = time.process_time()
    found = refusal(data)
    spent_s = time.process_time() - started

    assert found[0] == code
    assert words in found[1]
    assert spent_s < 0.05


def test_every_cut_is_refused() -> None:
    """A file that ends early is refused wherever it ends."""
    data = saved(pictures.photo(96, 64), "AVIF")

    for end in range(12, len(data), 7):
        assert refusal(data[:end])[0] == "image_invalid"


def test_metadata_never_reaches_the_decoder() -> None:
    """Exif, XMP and colour profiles lose their names; Pillow would read a crafted Exif directory for seconds."""
    exif = Image.Exif()
    exif[0x010E] = "a description"
    data = saved(pictures.arrow(), "AVIF", exif=exif, xmp=b"<x/>", icc_profile=bytes(200))
    with Image.open(pictures.BytesIO(data)) as image:
        assert {"exif", "xmp", "icc_profile"} <= set(image.info)

    with Image.open(pictures.BytesIO(walk(data).essence()), formats=["AVIF"]) as image:
        assert not {"exif", "xmp", "icc_profile"}.intersection(image.info)


def test_exif_does_not_turn_an_avif() -> None:
    """The container's own irot and imir are its orientation; other tools leave Exif's behind."""
    quarter = box(b"irot", b"\1")
    note = Item(kind=b"Exif", properties=(), content=bytes(4) + pictures.with_orientation(6).tobytes())

    assert walk(avif(Item(), note)).orientation == 1
    assert walk(avif(Item(properties=(size(64, 64), quarter)), note)).orientation == 8


def test_grey_pictures() -> None:
    """Grey stays grey."""
    data = saved(Image.new("L", (32, 32), 77), "AVIF", quality=100)
    header = probe(data, LIMITS)

    levels = np.asarray(decode(data, header, (32, 32)), dtype=int)

    assert np.abs(levels - 77).max() <= 2
