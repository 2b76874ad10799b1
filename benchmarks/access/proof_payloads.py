"""What is sent: photos of three sizes, two bombs, and a chat body around them whose bytes are new each time."""

import base64
import io
import itertools
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import orjson
from PIL import Image

from toolkit.core.plan import ImageRecipe
from workloads.images import encode

SMALL, MIDDLE, LARGE, PROGRESSIVE = (
    "1920x1080 JPEG",
    "4000x3000 JPEG",
    "8000x6000 JPEG",
    "8000x6000 progressive JPEG",
)
TEXT = "short text"
READY = "448x448 JPEG"
"""As many pixels as the tiny model sees: its engines do the same with it as with a photo that the gateway has prepared."""
SCANS, PIXELS = "4000x3000 JPEG of 2,009 scans", "13000x13000 PNG"
PHOTOS = {
    SMALL: (1920, 1080, 85),
    MIDDLE: (4000, 3000, 90),
    LARGE: (8000, 6000, 94),
    PROGRESSIVE: (8000, 6000, 94),
}
BOMBS = (SCANS, PIXELS)
MAX_TOKENS = 4
SOI, COMMENT, CHROMA = b"\xff\xd8", b"\xff\xfe", b"\xff\xdb\x00\x43\x01"
HEAD_BYTES = 900  # a multiple of three: base64 of the rest does not depend on what stands before
TINTS = 8


@dataclass(frozen=True)
class Body:
    """JSON in pieces, without its closing brace: the large ones are shared between requests."""

    pieces: tuple[bytes, ...]

    @property
    def whole(self) -> tuple[bytes, ...]:
        return (*self.pieces, b"}")

    def for_leg(self, choice: int, **fields: str | int) -> tuple[bytes, ...]:
        """As serving.engine_body.EngineBody, which Dispatcher takes: the fields of the rendezvous behind the rest."""
        del choice
        return (*self.pieces, b"," + orjson.dumps(fields)[1:])


@dataclass
class Bodies:
    """Chat-completions bodies. No two show the same picture, and nothing on the way can know one from before.

    Photos are drawn `different` times; a number goes into the text, which comes first, and into each JPEG as a comment
    and as the first step of its colour table, which makes another picture of it at no cost.
    """

    model: str
    different: int
    _made: dict[tuple[str, int], tuple[bytes, bytes]] = field(default_factory=dict)
    _number: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def make(self, name: str, at: int = 0) -> Body:
        """One body with the `at`-th picture of that name."""
        number = next(self._number)
        said = orjson.dumps(f"Request {number}: describe what you see, briefly.")
        head = (
            b'{"model":%b,"max_tokens":%d,"ignore_eos":true,"stream":true,"messages":[{"role":"user","content":'
            % (
                orjson.dumps(self.model),
                MAX_TOKENS,
            )
        )
        if name == TEXT:
            return Body((head + said + b"}]",))
        start, rest = self._file(name, at)
        media = b"image/png"
        if start.startswith(SOI):
            media, start = b"image/jpeg", _tinted(start, number)
        before = head + b'[{"type":"text","text":' + said + b'},{"type":"image_url","image_url":{"url":"data:'
        return Body((before + media + b";base64," + base64.b64encode(start), rest, b'"}}]}]'))

    def _file(self, name: str, at: int) -> tuple[bytes, bytes]:
        """The first bytes of a file, and the rest in base64."""
        key = (name, at % (1 if name in BOMBS else self.different))
        if key not in self._made:
            data = _make(*key)
            if data.startswith(SOI):
                data = SOI + COMMENT + struct.pack(">H", 18) + b"0" * 16 + data[2:]
            self._made[key] = data[:HEAD_BYTES], base64.b64encode(data[HEAD_BYTES:])
        return self._made[key]


def _tinted(start: bytes, number: int) -> bytes:
    changed = bytearray(start)
    changed[6:22] = f"{number:016d}".encode()
    table = changed.find(CHROMA)
    if table >= 0:
        changed[table + len(CHROMA)] = 1 + number % TINTS
    return bytes(changed)


def _make(name: str, number: int) -> bytes:
    if name == SCANS:
        return scan_bomb()
    if name == PIXELS:
        return png_bomb()
    width, height, quality = PHOTOS.get(name, (448, 448, 94))
    seed = 1000 * [*PHOTOS, READY].index(name) + number
    data = encode(ImageRecipe("natural", width, height, seed, quality=quality))
    if name != PROGRESSIVE:
        return data
    out = io.BytesIO()
    with Image.open(io.BytesIO(data)) as image:
        image.save(out, "JPEG", quality=quality, progressive=True)
    return out.getvalue()


def scan_bomb(scans: int = 2009) -> bytes:
    """4000x3000, grey, and its last scan again and again: each goes over every block of the picture."""
    out = io.BytesIO()
    Image.new("RGB", (4000, 3000), (120, 130, 140)).save(out, "JPEG", quality=85, progressive=True)
    data = out.getvalue()
    last = data.rindex(b"\xff\xc4", 0, data.rindex(b"\xff\xda"))  # with the table it needs
    more = scans - data.count(b"\xff\xda")
    return data[:-2] + data[last:-2] * more + data[-2:]


def png_bomb(side: int = 13_000) -> bytes:
    """169 megapixels of one colour: under Pillow's own limit, above its warning."""
    packer, row = zlib.compressobj(9), bytes(1 + 3 * side)
    packed = b"".join([*(packer.compress(row) for _ in range(side)), packer.flush()])
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", packed), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
