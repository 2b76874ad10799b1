"""What is refused before any decode, with which code, and how cheaply."""

import time

import pytest
from PIL import Image

from serving.access.probe import probe
from serving.config import AccessConfig
from tests.serving.access import pictures
from tests.serving.access.avif_files import FRAME, Item, avif, picture, sequence
from tests.serving.access.pictures import saved
from toolkit.core.errors import ToolkitError

LIMITS = AccessConfig()


def code_of(data: bytes, limits: AccessConfig = LIMITS) -> str:
    with pytest.raises(ToolkitError) as caught:
        probe(data, limits)
    return caught.value.code.code


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "AVIF"])
def test_header_of_each_format(kind: str) -> None:
    """Format and size come from the bytes alone."""
    data = saved(pictures.arrow(), kind)

    header = probe(data, LIMITS)

    assert (header.format, header.width, header.height) == (kind, 60, 40)
    assert (header.orientation, header.size_bytes, header.progressive) == (1, len(data), False)


def test_progressive_jpeg_is_marked() -> None:
    """A progressive JPEG costs several times a baseline one, so the header says so."""
    assert probe(saved(pictures.arrow(), "JPEG", progressive=True), LIMITS).progressive


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "AVIF"])
def test_upright_size_swaps_with_quarter_turns(kind: str) -> None:
    """`size` is what a viewer sees; width and height are as stored."""
    header = probe(saved(pictures.arrow(), kind, exif=pictures.with_orientation(6)), LIMITS)

    assert (header.width, header.height, header.orientation, header.size) == (60, 40, 6, (40, 60))


BOMBS = {
    "34-byte WebP of 268 MP": (pictures.webp_bomb, "image_too_large"),
    "PNG of 169 MP": (pictures.png_bomb, "image_too_large"),
    "GIF canvas of 4 GP": (lambda: pictures.gif_canvas(65535, 65535), "image_too_large"),
    "PNG of 88 MP, 16-bit RGBA": (lambda: pictures.png(9400, 9400, 16, 6, bytes(687_000)), "image_too_large"),
    "PNG of 2.5 GP, 1 bit": (lambda: pictures.png(50_000, 50_000, 1, 0, bytes(500_000)), "image_too_large"),
    "AVIF of 268 MP": (lambda: avif(picture(16384, 16384)), "image_too_large"),
    "AVIF of 64x64 around a stream of 268 MP": (
        lambda: avif(Item(content=sequence(16384, 16384) + FRAME)),
        "image_invalid",
    ),
    "AVIF of 1,000 hidden frames": (
        lambda: avif(Item(content=sequence(64, 64) + FRAME * 1000)),
        "image_invalid",
    ),
    "AVIF whose items are the same megabytes 4,000 times": (
        lambda: avif(Item(places=[(0, 1 << 20)] * 4000), Item(content=bytes(1 << 20))),
        "image_invalid",
    ),
    "TIFF of 177 MP": (
        lambda: saved(Image.new("1", (13300, 13300)), "TIFF", compression="group4"),
        "image_invalid",
    ),
    "SVG that names an entity a billion times": (
        lambda: b'<!DOCTYPE svg [<!ENTITY a "&b;&b;">]><svg>&a;</svg>' * 1000,
        "image_invalid",
    ),
    "JPEG header forged to 4 GP": (
        lambda: pictures.resized_header(saved(pictures.photo(), "JPEG"), 64250, 64250),
        "image_invalid",
    ),
    "JPEG header forged to 144 MP": (
        lambda: pictures.resized_header(saved(pictures.photo(), "JPEG"), 12000, 12000),
        "image_invalid",
    ),
    "JPEG header forged to 62 MP": (
        lambda: pictures.resized_header(saved(pictures.photo(), "JPEG"), 7900, 7900),
        "image_invalid",
    ),
    "JPEG of 2,000 scans": (pictures.scan_bomb, "image_invalid"),
    "JPEG of a million comments": (
        lambda: b"\xff\xd8" + b"\xff\xfe\0\x02" * 1_000_000 + saved(pictures.arrow(), "JPEG")[2:],
        "image_invalid",
    ),
    "JPEG of a million comments between scans": (
        lambda: (lambda d: d[:-2] + b"\xff\xfe\0\x02" * 1_000_000 + d[-2:])(saved(pictures.arrow(), "JPEG")),
        "image_invalid",
    ),
    "JPEG after 8 MB of fill": (
        lambda: b"\xff\xd8" + b"\xff" * 8_000_000 + saved(pictures.arrow(), "JPEG")[2:],
        "image_invalid",
    ),
    "PNG of 500,000 empty chunks": (
        lambda: pictures.png(1, 1, 8, 0, b"\0\0", pictures.chunk(b"tEXt", b"") * 500_000),
        "image_invalid",
    ),
    "GIF comment of a million one-byte blocks": (
        lambda: (lambda d: d[:19] + b"\x21\xfe" + b"\x01x" * 1_000_000 + b"\0" + d[19:])(
            pictures.gif_canvas(9, 9)
        ),
        "image_invalid",
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused_cheaply(name: str) -> None:
    """Each bomb is refused by name, in under 50 ms of CPU and 10 MB."""
    make, expected = BOMBS[name]
    data = make()
    code_of(saved(pictures.arrow(), "PNG")[:20])  # everything is imported

    before_mb = pictures.fresh_peak_mb()
    started = time.process_time()
    code = code_of(data)
    spent_s = time.process_time() - started

    assert code == expected
    assert spent_s < 0.05
    assert pictures.peak_mb() - before_mb < 10


@pytest.mark.parametrize("kind", [b"zTXt", b"iCCP"])
def test_packed_metadata_is_never_unpacked(kind: bytes) -> None:
    """A PNG whose text or colour profile unpacks to 100 MB is a picture like any other: that part is left out."""
    data = pictures.png(8, 8, 8, 0, (b"\0" + bytes(8)) * 8, pictures.packed_metadata(kind))
    before_mb = pictures.fresh_peak_mb()
    started = time.process_time()

    assert probe(data, LIMITS).size == (8, 8)

    assert time.process_time() - started < 0.05
    assert pictures.peak_mb() - before_mb < 10


def test_real_jpeg_over_the_pixel_limit_is_too_large() -> None:
    """A complete 81 MP JPEG is refused for its pixels."""
    assert code_of(saved(Image.new("L", (9000, 9000)), "JPEG")) == "image_too_large"


def test_pixel_limit_is_named() -> None:
    """The message says what was found and what the limit is."""
    with pytest.raises(ToolkitError) as caught:
        probe(pictures.webp_bomb(), LIMITS)

    assert "16383x16383" in caught.value.message
    assert "64000000" in caught.value.message


def test_8000x6000_passes_by_default() -> None:
    """48 MP is under the default limit, 169 MP is not."""
    data = saved(Image.new("L", (8000, 6000)), "JPEG")

    assert probe(data, LIMITS).width == 8000


NOT_IMAGES = {
    "empty": b"",
    "one byte": b"\xff",
    "HTML": b"<!DOCTYPE html><html><body>404</body></html>",
    "SVG": b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>',
    "PDF": b"%PDF-1.7\n1 0 obj\n<<>>\nendobj\n",
    "EPS": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\nshowpage\n",
    "PSD": b"8BPS\0\1" + bytes(60),
    "zeros": bytes(1000),
    "JPEG magic alone": b"\xff\xd8\xff",
    "PNG magic alone": b"\x89PNG\r\n\x1a\n",
    "GIF magic alone": b"GIF89a",
    "RIFF magic alone": b"RIFF",
    "WAV": b"RIFF\x24\0\0\0WAVEfmt " + bytes(40),
}


@pytest.mark.parametrize("name", NOT_IMAGES)
def test_what_is_no_image_is_refused(name: str) -> None:
    """Content decides: none of these reaches a decoder."""
    assert code_of(NOT_IMAGES[name]) == "image_invalid"


@pytest.mark.parametrize("kind", ["TIFF", "BMP", "ICO", "PPM", "TGA", "JPEG2000"])
def test_other_formats_are_refused(kind: str) -> None:
    """Formats that Pillow knows and we do not take are refused, however valid."""
    assert code_of(saved(pictures.arrow(), kind)) == "image_invalid"


def test_palette_png_without_a_palette_is_refused() -> None:
    """The decoder would fail an assertion of its own."""
    data = saved(pictures.arrow().quantize(4), "PNG")
    begin, end = data.index(b"PLTE") - 4, data.index(b"IDAT") - 4

    assert code_of(data[:begin] + data[end:]) == "image_invalid"


@pytest.mark.parametrize(("width", "height"), [(0, 5), (5, 0), (0, 0)])
def test_sides_of_zero_are_refused(width: int, height: int) -> None:
    """A picture without pixels is not a picture."""
    assert code_of(pictures.png(width, height, 8, 0, b"")) == "image_invalid"
    assert code_of(pictures.resized_header(saved(pictures.arrow(), "JPEG"), width, height)) == "image_invalid"
    assert code_of(pictures.gif_canvas(width, height)[:13] + b"\x3b") == "image_invalid"


@pytest.mark.parametrize(("width", "height"), [(65500, 10), (10, 65500), (201, 1)])
def test_side_ratio_over_the_limit_is_refused(width: int, height: int) -> None:
    """The Qwen-VL processors raise above 200; here it is a plain 400."""
    assert code_of(saved(Image.new("L", (width, height)), "PNG")) == "image_invalid"


def test_side_ratio_at_the_limit_passes() -> None:
    """200 to 1 is still taken."""
    assert probe(saved(Image.new("L", (2000, 10)), "PNG"), LIMITS).width == 2000


def test_byte_limit() -> None:
    """One byte over is refused before anything is read."""
    data = saved(pictures.arrow(), "PNG")

    assert code_of(data, AccessConfig(max_image_bytes=len(data) - 1)) == "image_too_large"
    assert probe(data, AccessConfig(max_image_bytes=len(data))).width == 60


@pytest.mark.parametrize("kind", ["PNG", "GIF"])
def test_cut_off_files_with_chunks_are_seen_early(kind: str) -> None:
    """Where the byte structure shows that the end is missing, no decoder is asked."""
    data = saved(pictures.photo(), kind)

    assert code_of(data[: len(data) // 2]) == "image_invalid"


def test_trailer_after_the_picture_does_not_count_as_scans() -> None:
    """Phones put films behind their JPEGs; bytes in there that look like scans are none."""
    data = saved(pictures.photo(), "JPEG") + b"\xff\xda" * 5000

    assert probe(data, LIMITS).format == "JPEG"
