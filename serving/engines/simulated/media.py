"""Images of a request: which items the engine takes, and how many tokens they become."""

import asyncio
import base64
import binascii
import hashlib
import io
from collections.abc import Awaitable, Callable
from typing import Any

from PIL import Image

from serving.access.grids import QwenGrid
from toolkit.core.errors import InvalidRequest
from toolkit.core.http.client import HttpClient
from toolkit.core.http.errors import TransportError

FETCH_TIMEOUT_S = 3.0
"""SGLang's REQUEST_TIMEOUT for one image."""
FETCH_MOST_BYTES = 64_000_000

MEDIA_REF_FIELDS = frozenset({
    "url", "detail", "max_dynamic_patch", "content_hash", "min_pixels", "max_pixels", "total_max_pixels", "fps",
    "num_frames", "min_frames", "max_frames", "max_tokens_per_frame", "max_image_tokens", "use_audio", "image_grid_thw",
})  # fmt: skip
"""What a media item may hold in POST /generate (api/v1/api_types.py:443); anything else is refused by name."""

MARKERS = 2
"""Tokens around each image: vision_start and vision_end."""

DECODERS = 2
"""Images decoded at once: SGLang's processor workers where there is no GPU (base_processor.py:780)."""
KNOWN_IMAGES = 1024
"""Images whose sizes are remembered by digest, so that load tests that repeat images do not pay for decoding them again."""

Fetch = Callable[[str], Awaitable[bytes]]


class BadMedia(Exception):
    """The image cannot be had or read: 400."""


class Bomb(Exception):
    """Pillow refuses the size. SGLang 0.5.23 answers 500 to it, since that is none of its client errors (common.py:1900)."""


class Eyes:
    """Loads images and counts their tokens by Qwen2.5-VL's rule. fetch: None refuses http(s) URLs."""

    def __init__(self, min_pixels: int, max_pixels: int, fetch: Fetch | None = None) -> None:
        self._grid = QwenGrid("qwen2_5_vl", 28, min_pixels, max_pixels)
        self._fetch = fetch
        self._turns = asyncio.Semaphore(DECODERS)
        self._known: dict[bytes, tuple[int, int]] = {}

    async def tokens(self, urls: list[str]) -> int:
        """Image tokens of all, without markers. Raises BadMedia, Bomb."""
        total = 0
        for index, url in enumerate(urls):
            try:
                total += await self._count(await self._load(url))
            except BadMedia as error:
                shown = (
                    f"ImageData(url='{url[:30]}', detail='auto', max_dynamic_patch=None, preprocess_kwarg..."
                )
                raise BadMedia(
                    f"An exception occurred while loading IMAGE data at index {index}: "
                    f"Error while loading data {shown}: {error}"
                ) from error
        return total

    async def _load(self, url: str) -> bytes:
        if url.startswith(("http://", "https://")):
            if self._fetch is None:
                raise BadMedia("the simulated engine fetches no URL unless it is started with --fetch-images")
            return await self._fetch(url)
        if url.startswith(("/", "file:")):
            raise BadMedia("the simulated engine reads no local file")
        data = url.partition(",")[2] if url.startswith("data:") else url
        try:
            return base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError) as error:
            raise BadMedia(f"Could not decode image: {error}") from error

    async def _count(self, data: bytes) -> int:
        digest = hashlib.blake2b(data, digest_size=16).digest()
        if digest not in self._known:
            async with self._turns:
                size = await asyncio.to_thread(_decoded_size, data)
            while len(self._known) >= KNOWN_IMAGES:
                self._known.pop(next(iter(self._known)))
            self._known[digest] = size
        try:
            return self._grid.tokens(*self._known[digest])
        except InvalidRequest as error:
            raise BadMedia(error.message) from error


def _decoded_size(data: bytes) -> tuple[int, int]:
    """Width and height of an image that decodes to its end, as SGLang makes sure of (common.py:2134). Raises BadMedia, Bomb."""
    try:
        with Image.open(io.BytesIO(data)) as image:
            image.load()
            return image.size
    except Image.DecompressionBombError as error:
        raise Bomb(str(error)) from error
    except (OSError, SyntaxError, ValueError) as error:
        raise BadMedia(f"Could not decode image: {error}") from error


def fetcher(client: HttpClient) -> Fetch:
    """Takes the bytes behind an http(s) URL. The result raises BadMedia."""

    async def fetch(url: str) -> bytes:
        try:
            async with asyncio.timeout(FETCH_TIMEOUT_S):
                response = await client.send("GET", url)
                try:
                    data = await response.read(FETCH_MOST_BYTES)
                finally:
                    response.close()
        except (TransportError, TimeoutError, ValueError) as error:
            raise BadMedia(f"Failed to fetch {url}: {error}") from error
        if response.status != 200:
            raise BadMedia(f"Failed to fetch {url}: status {response.status}")
        return data

    return fetch


def gate(items: Any) -> list[str]:
    """The URLs of an image_data field: a string, a MediaRef, or lists of them. Raises BadMedia in the gate's words."""
    if items is None:
        return []
    if isinstance(items, str):
        return [items]
    if isinstance(items, list):
        return [url for item in items for url in gate(item)]
    if not isinstance(items, dict):
        raise BadMedia(f"Expected a media item, got {type(items).__name__}")
    for name in items:
        if name not in MEDIA_REF_FIELDS:
            raise BadMedia(f"unknown field `{name}`")
    grid = items.get("image_grid_thw")
    if grid is not None and not (isinstance(grid, list) and all(isinstance(row, list) for row in grid)):
        raise BadMedia("image_grid_thw: expected a list of lists")
    if not isinstance(items.get("url"), str):
        raise BadMedia("missing field `url`")
    return [items["url"]]
