"""AVIF files box by box: what no encoder writes, but anyone can."""

import base64
import struct
from dataclasses import dataclass, field


def box(kind: bytes, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return struct.pack(">I", 8 + len(body)) + kind + body


def full(kind: bytes, *parts: bytes, version: int = 0) -> bytes:
    return box(kind, bytes([version, 0, 0, 0]), *parts)


def size(width: int, height: int) -> bytes:
    return full(b"ispe", struct.pack(">II", width, height))


def unit(kind: int, body: bytes) -> bytes:
    """One AV1 unit with its length in two bytes."""
    return bytes([kind << 3 | 2, len(body) & 0x7F | 0x80, len(body) >> 7]) + body


def sequence(width: int, height: int, *, reduced: bool = True) -> bytes:
    """A sequence header that claims a size; not reduced: frames may name another one."""
    fields = [(0, 3), (1, 1), (int(reduced), 1)]
    fields += [(0, 5)] if reduced else [(0, 1), (0, 1), (0, 5), (0, 12), (0, 5)]
    fields += [(15, 4), (15, 4), (width - 1, 16), (height - 1, 16)]
    fields += [(0, 3)] if reduced else [(0, 1), (0, 7), (0, 1), (0, 1), (0, 1)]
    value, count = 0, 0
    for number, bits in fields:
        value, count = value << bits | number, count + bits
    spare = -count % 8 + 64
    return unit(1, (value << spare).to_bytes((count + spare) // 8, "big"))


FRAME = unit(6, bytes(40))
NOT_OWN_SIZE = unit(6, bytes([0b0001_0100]) + bytes(40))
"""A shown key frame that names another size."""


@dataclass
class Item:
    """One item: kind, properties, bytes, and where they are said to be (default: where they are)."""

    kind: bytes = b"av01"
    properties: tuple[bytes, ...] = (size(64, 64),)
    content: bytes = sequence(64, 64) + FRAME
    places: list[tuple[int, int]] = field(default_factory=list)


def avif(*items: Item, references: bytes = b"", brand: bytes = b"avif", more: bytes = b"") -> bytes:
    """A file of these items, the first of them the main picture."""
    entries = [
        full(b"infe", struct.pack(">HH4sx", n, 0, item.kind), version=2) for n, item in enumerate(items, 1)
    ]
    store = [prop for item in items for prop in item.properties]
    links, index = b"", 1
    for number, item in enumerate(items, 1):
        own = range(index, index + len(item.properties))
        links += struct.pack(">HB", number, len(own)) + bytes(own)
        index += len(own)

    def head(begin: int) -> bytes:
        places = b""
        for number, item in enumerate(items, 1):
            found = item.places or [(begin, len(item.content))]
            places += struct.pack(">HHH", number, 0, len(found))
            places += b"".join(struct.pack(">II", *place) for place in found)
            begin += len(item.content)
        meta = full(
            b"meta",
            full(b"hdlr", bytes(4) + b"pict" + bytes(13)),
            full(b"pitm", struct.pack(">H", 1)),
            full(b"iloc", struct.pack(">HH", 0x4400, len(items)), places),
            full(b"iinf", struct.pack(">H", len(items)), *entries),
            box(b"iprp", box(b"ipco", *store), full(b"ipma", struct.pack(">I", len(items)), links)),
            full(b"iref", references) if references else b"",
        )
        return box(b"ftyp", brand + bytes(4) + brand + b"mif1miaf") + meta + more

    begin = len(head(0)) + 8
    return head(begin) + box(b"mdat", *(item.content for item in items))


def grid(rows: int, columns: int, width: int, height: int) -> bytes:
    """A grid item's content."""
    return struct.pack(">BBBBHH", 0, 0, rows - 1, columns - 1, width, height)


def made_of(item: int, tiles: list[int]) -> bytes:
    """The reference from a grid to its tiles."""
    return box(b"dimg", struct.pack(f">HH{len(tiles)}H", item, len(tiles), *tiles))


def picture(width: int, height: int) -> Item:
    """One frame of that size, and a box that says the same."""
    return Item(properties=(size(width, height),), content=sequence(width, height) + FRAME)


# Made by imagecodecs 2026.3.6 (libavif, aom), since Pillow writes 8 bits alone: 16x16, quality 95.
_DEEP = {
    "RGB, 10 bits": "AAAAIGZ0eXBhdmlmAAAAAGF2aWZtaWYxbWlhZk1BMUEAAADrbWV0YQAAAAAAAAAhaGRscgAAAAAAAAAAcGljdAAAAAAAAAAAAAAAAAAAAAAO"
    "cGl0bQAAAAAAAQAAAB5pbG9jAAAAAEQAAAEAAQAAAAEAAAETAAAAJwAAAChpaW5mAAAAAAABAAAAGmluZmUCAAAAAAEAAGF2MDFDb2xvcgAA"
    "AABqaXBycAAAAEtpcGNvAAAAFGlzcGUAAAAAAAAAEAAAABAAAAAQcGl4aQAAAAADCgoKAAAADGF2MUOBIEAAAAAAE2NvbHJuY2x4AAIAAgAG"
    "gAAAABdpcG1hAAAAAAAAAAEAAQQBAoMEAAAAL21kYXQSAAoIOAz/28CAgaQyGRECI1KAAPIAAAB1e3Td8haTmV03UQfoJKg=",
    "RGB, 12 bits": "AAAAHGZ0eXBhdmlmAAAAAGF2aWZtaWYxbWlhZgAAAOttZXRhAAAAAAAAACFoZGxyAAAAAAAAAABwaWN0AAAAAAAAAAAAAAAAAAAAAA5waXRt"
    "AAAAAAABAAAAHmlsb2MAAAAARAAAAQABAAAAAQAAAQ8AAAAoAAAAKGlpbmYAAAAAAAEAAAAaaW5mZQIAAAAAAQAAYXYwMUNvbG9yAAAAAGpp"
    "cHJwAAAAS2lwY28AAAAUaXNwZQAAAAAAAAAQAAAAEAAAABBwaXhpAAAAAAMMDAwAAAAMYXYxQ4FAYAAAAAATY29scm5jbHgAAgACAAaAAAAA"
    "F2lwbWEAAAAAAAAAAQABBAECgwQAAAAwbWRhdBIACglYDP/a0CAgaIAyGRECI1KAAPIABL7Ne6Rh2dpjdsf8pRS8NdQ=",
    "grey, 10 bits": "AAAAHGZ0eXBhdmlmAAAAAGF2aWZtaWYxbWlhZgAAAOltZXRhAAAAAAAAACFoZGxyAAAAAAAAAABwaWN0AAAAAAAAAAAAAAAAAAAAAA5waXRt"
    "AAAAAAABAAAAHmlsb2MAAAAARAAAAQABAAAAAQAAAQ0AAAAPAAAAKGlpbmYAAAAAAAEAAAAaaW5mZQIAAAAAAQAAYXYwMUNvbG9yAAAAAGhp"
    "cHJwAAAASWlwY28AAAAUaXNwZQAAAAAAAAAQAAAAEAAAAA5waXhpAAAAAAEKAAAADGF2MUOBAFwAAAAAE2NvbHJuY2x4AAIAAgACgAAAABdp"
    "cG1hAAAAAAAAAAEAAQQBAoMEAAAAF21kYXQSAAoFGAz/+dQyBBAAO6A=",
    "clear, 12 bits": "AAAAHGZ0eXBhdmlmAAAAAGF2aWZtaWYxbWlhZgAAAYZtZXRhAAAAAAAAACFoZGxyAAAAAAAAAABwaWN0AAAAAAAAAAAAAAAAAAAAAA5waXRt"
    "AAAAAAABAAAALGlsb2MAAAAARAAAAgABAAAAAQAAAb4AAAAoAAIAAAABAAABqgAAABQAAABCaWluZgAAAAAAAgAAABppbmZlAgAAAAABAABh"
    "djAxQ29sb3IAAAAAGmluZmUCAAAAAAIAAGF2MDFBbHBoYQAAAAAaaXJlZgAAAAAAAAAOYXV4bAACAAEAAQAAAMNpcHJwAAAAnWlwY28AAAAU"
    "aXNwZQAAAAAAAAAQAAAAEAAAABBwaXhpAAAAAAMMDAwAAAAMYXYxQ4FAYAAAAAATY29scm5jbHgAAgACAAaAAAAADnBpeGkAAAAAAQwAAAAM"
    "YXYxQ4FAfAAAAAA4YXV4QwAAAAB1cm46bXBlZzptcGVnQjpjaWNwOnN5c3RlbXM6YXV4aWxpYXJ5OmFscGhhAAAAAB5pcG1hAAAAAAAAAAIA"
    "AQQBAoMEAAIEAQWGBwAAAERtZGF0EgAKBVgM//jqMgkQAAAeGLCt7A4SAAoJWAz/2tAgIGiAMhkRAiNSgADyAAS+zXukYdnaY3bH/KUUvDXU",
}
DEEP = {name: base64.b64decode(text) for name, text in _DEEP.items()}
"""RGB: a quarter, a half, three quarters of full; grey: a half; clear: transparent all over."""
