"""Still WebP by Pillow's own libwebp: Pillow's pixels, for a fifth of the memory."""

import numpy as np
import pytest
from PIL import Image

from serving.access import webp
from serving.access.decode import decode
from serving.access.probe import probe
from serving.config import AccessConfig
from tests.serving.access import pictures
from tests.serving.access.pictures import saved


def clear(size: tuple[int, int]) -> Image.Image:
    picture = pictures.photo(*size)
    picture.putalpha(Image.linear_gradient("L").resize(size))
    return picture


@pytest.mark.parametrize("options", [{"quality": 70}, {"lossless": True, "exact": True}])
@pytest.mark.parametrize("alpha", [False, True])
def test_pixels_are_those_of_pillow(options: dict[str, object], alpha: bool) -> None:
    """Lossy and lossless, with transparency and without; bytes after the picture are not looked at."""
    data = saved(clear((301, 203)) if alpha else pictures.photo(301, 203), "WEBP", **options)

    pixels = webp.decoded(data + b"trailer", len(data))

    assert pixels is not None
    assert pixels.alpha == alpha
    made = pixels.rows(0, 203)
    with Image.open(pictures.BytesIO(data)) as plain:
        assert np.array_equal(np.asarray(made), np.asarray(plain.convert(made.mode)))


def test_animations_are_left_to_pillow() -> None:
    data = saved(pictures.photo(64, 48), "WEBP", save_all=True, append_images=[Image.new("RGB", (64, 48))])

    assert webp.decoded(data, len(data)) is None
    assert probe(data, AccessConfig()).variant == "animated"


@pytest.mark.parametrize("lossless", [False, True])
def test_damage_is_an_error(lossless: bool) -> None:
    data = bytearray(saved(pictures.photo(301, 203), "WEBP", lossless=lossless))
    data[len(data) // 2 :] = bytes(len(data) - len(data) // 2)
    data[4:8] = (len(data) - 8).to_bytes(4, "little")

    with pytest.raises(ValueError, match="cannot decode"):
        webp.decoded(bytes(data[: len(data) // 2]), len(data) // 2)


@pytest.mark.slow
def test_memory_is_the_pixels() -> None:
    """12 MP as RGB are 36 MB; Pillow's way takes 190."""
    data = saved(pictures.photo(4000, 3000), "WEBP", quality=60, method=0)
    header = probe(data, AccessConfig())
    decode(saved(pictures.photo(), "WEBP"), probe(saved(pictures.photo(), "WEBP"), AccessConfig()), (56, 28))
    before = pictures.fresh_peak_mb()

    decode(data, header, (1148, 840))

    assert pictures.peak_mb() - before < 50
