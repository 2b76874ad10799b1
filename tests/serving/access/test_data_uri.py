"""data: URIs: only base64, only images, capped before they are decoded."""

import base64

import pytest

from serving.access.fetch import Fetcher
from tests.serving.access.web import code_of, without_server


def data_uri(data: bytes, head: str = "data:image/png;base64") -> str:
    return f"{head},{base64.b64encode(data).decode()}"


@pytest.mark.parametrize("size", [0, 1, 2, 3, 300_000, 2_000_000])
def test_data_uri(size: int) -> None:
    """Small ones are decoded in place, large ones on the pool."""

    async def scenario(fetcher: Fetcher) -> None:
        assert (await fetcher.fetch(data_uri(bytes(size)))).data == bytes(size)
        assert (await fetcher.fetch(data_uri(bytes(size), "DATA:Image/JPEG;x=y;BASE64"))).data == bytes(size)

    without_server(scenario)


@pytest.mark.parametrize(
    "uri",
    [
        "data:image/png;base64", "data:image/png,abc", "data:,abc", "data:text/html;base64,YWJj", "data:;base64,YWJj",
        "data:image/png;base64,YW Jj", "data:image/png;base64,YWJ", "data:image/png;base64,%59", "data:image/png;base64,\u00e9\u00e9",
    ],
)  # fmt: skip
def test_bad_data_uris(uri: str) -> None:
    """Only base64, only images, only valid."""

    async def scenario(fetcher: Fetcher) -> None:
        assert await code_of(fetcher, uri) == "image_invalid"

    without_server(scenario)


def test_padding_inside_a_long_data_uri_is_refused() -> None:
    """Long ones are decoded in pieces; the seams do not excuse an early end."""
    uri = data_uri(bytes(786_431)) + data_uri(bytes(300), "").removeprefix(",")

    async def scenario(fetcher: Fetcher) -> None:
        assert await code_of(fetcher, uri) == "image_invalid"

    without_server(scenario)


def test_data_uri_is_capped_before_it_is_decoded() -> None:
    """Four characters are three bytes; the limit is exact."""

    async def scenario(fetcher: Fetcher) -> None:
        assert (await fetcher.fetch(data_uri(bytes(1000)))).data == bytes(1000)
        assert await code_of(fetcher, data_uri(bytes(1001))) == "image_too_large"
        assert await code_of(fetcher, "data:image/png;base64," + "!" * 2000) == "image_too_large"

    without_server(scenario, max_image_bytes=1000)
