"""AVIF: boxes that describe items, and AV1 frames that lie anywhere in the file.

The picture is the primary item: one AV1 frame, or a grid of them. A film (avis) shows its primary item too, never
its track. The essence keeps every offset: what a decoder should not read (tracks, Exif, XMP, colour profiles, gain
maps) gets a kind that no decoder knows. irot and imir are the orientation; Exif's is void in this format. A crop
(clap) is not applied.
"""

from serving.access.formats.av1 import size_of
from serving.access.formats.avif_items import Items, Meta
from serving.access.formats.bmff import Box, boxes
from serving.access.formats.structure import MalformedError, Structure

_KEPT = frozenset([b"ftyp", b"meta", b"mdat", b"free"])
_HIDDEN = b"free"
_BRANDS_END = 256  # of the file; encoders list about eight

_TURNED = {
    (0, None): 1, (1, None): 8, (2, None): 3, (3, None): 6,
    (0, 0): 4, (1, 0): 5, (2, 0): 2, (3, 0): 7,
    (0, 1): 2, (1, 1): 7, (2, 1): 4, (3, 1): 5,
}  # fmt: skip
"""Exif's number for a turn by n quarters to the left, then a mirror: 0 top to bottom, 1 left to right."""

_MOST_TIMES = 4  # the main picture's pixels; transparency doubles them, thumbnails and depth add less
_SPARE_PIXELS = 1 << 20


def walk(data: bytes) -> Structure:
    """Raises MalformedError, struct.error or IndexError for a file that no decoder should see."""
    patches: list[tuple[int, bytes]] = []
    found: Box | None = None
    for number, box in enumerate(boxes(data, 0, len(data))):
        if number == 0:
            places = [at for at in range(box.body, min(box.end, _BRANDS_END), 4) if at != box.body + 4]
            films = [at for at in places if data[at : at + 4] == b"avis"]
            if not films and all(data[at : at + 4] != b"avif" for at in places):
                raise MalformedError("the file is not AVIF")
            patches += [(at, b"avif") for at in {box.body, *films}]
        elif box.kind not in _KEPT:
            patches.append((box.at, _HIDDEN))
        if box.kind == b"meta":
            if found is not None:
                raise MalformedError("the AVIF describes its items twice")
            found = box
    if found is None:
        raise MalformedError("the AVIF has no still picture")
    meta = Meta(data, found)
    items = Items(data, meta)
    patches += [(at, _HIDDEN) for at in meta.hidden]
    width, height = items.size(items.primary)
    angle, axis = items.turn(items.primary)
    _check_pixels(items, width * height)
    return Structure("AVIF", width, height, _TURNED[angle, axis], parts=_patched(data, patches))


def _check_pixels(items: Items, pixels: int) -> None:
    """Every frame has the size that its item claims, the grids add up, and no frame is out of proportion."""
    total = 0
    for item in items.frames:
        width, height = items.size(item)
        total += width * height
        if size_of(items.content(item)) != (width, height):
            raise MalformedError("the AVIF contradicts itself about the size")
    if total > _MOST_TIMES * pixels + _SPARE_PIXELS:
        raise MalformedError("the AVIF has far more pixels than its main picture shows")
    for item in items.grids:
        items.check_grid(item)


def _patched(data: bytes, patches: list[tuple[int, bytes]]) -> list[memoryview | bytes]:
    view, parts, begin = memoryview(data), list[memoryview | bytes](), 0
    for at, new in sorted(patches):
        parts += [view[begin:at], new]
        begin = at + len(new)
    return [*parts, view[begin:]]
