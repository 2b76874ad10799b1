"""The items of an AVIF file: kinds, properties, references, and where their bytes are. All counts are bounded."""

from collections import defaultdict

from serving.access.formats.bmff import Box, Fields, boxes
from serving.access.formats.structure import MalformedError

_PARTS = frozenset([b"hdlr", b"pitm", b"iinf", b"iloc", b"iprp", b"iref", b"idat"])
_FRAME, _GRID = b"av01", b"grid"
_MOST = 4096  # items, extents, references and property links, each


class Meta:
    """The boxes of the meta box by kind, each at most once.

    hidden: where the kinds lie that no decoder should act on; Items finds more of them.
    """

    def __init__(self, data: bytes, box: Box) -> None:
        self.boxes: dict[bytes, Box] = {}
        self.hidden: list[int] = []
        for part in boxes(data, box.body + 4, box.end):
            if part.kind not in _PARTS:
                self.hidden.append(part.at)
            elif part.kind in self.boxes:
                raise MalformedError("the AVIF describes its items twice")
            self.boxes[part.kind] = part

    def fields(self, data: bytes, kind: bytes) -> tuple[Fields, int, int]:
        """(fields after version and flags, version, flags) of a part that must be there."""
        if kind not in self.boxes:
            raise MalformedError(f"the AVIF lacks its {kind.decode()} box")
        fields = Fields(data, self.boxes[kind])
        return fields, *fields.version()


class Items:
    """What the meta box says. Every lookup of something that is not there raises MalformedError."""

    def __init__(self, data: bytes, meta: Meta) -> None:
        self._data = data
        fields, version, _ = meta.fields(data, b"pitm")
        self.primary = fields.number(4 if version else 2)
        self._kinds = self._read_kinds(meta)
        self._properties = self._read_properties(meta)
        self._extents = self._read_extents(meta)
        self._tiles = self._read_tiles(meta)
        self.frames = [item for item, kind in self._kinds.items() if kind == _FRAME]
        self.grids = [item for item, kind in self._kinds.items() if kind == _GRID]
        if self._kinds.get(self.primary) not in (_FRAME, _GRID):
            raise MalformedError("the AVIF's main picture is neither a frame nor a grid of frames")

    def size(self, item: int) -> tuple[int, int]:
        """(width, height) that the item claims."""
        fields = self._property(item, b"ispe")
        if fields is None:
            raise MalformedError("the AVIF has a picture without a size")
        fields.version()
        return fields.number(4), fields.number(4)

    def turn(self, item: int) -> tuple[int, int | None]:
        """(quarter turns to the left, mirror axis)."""
        turn, mirror = self._property(item, b"irot"), self._property(item, b"imir")
        return (turn.number(1) & 3 if turn else 0), (mirror.number(1) & 1 if mirror else None)

    def content(self, item: int) -> memoryview | bytes:
        """The item's bytes."""
        view = memoryview(self._data)
        slices = [view[begin:end] for begin, end in self._extents.get(item, ())]
        if not slices:
            raise MalformedError("the AVIF has a picture without bytes")
        return slices[0] if len(slices) == 1 else b"".join(slices)

    def check_grid(self, item: int) -> None:
        """Raises MalformedError unless its tiles are frames of one size that cover the canvas without waste."""
        content = bytes(self.content(item)[:16])
        fields = Fields(content, Box(_GRID, 0, 0, len(content)))
        fields.number(1)
        sides = 4 if fields.number(1) & 1 else 2
        rows, columns = fields.number(1) + 1, fields.number(1) + 1
        width, height = fields.number(sides), fields.number(sides)
        tiles = self._tiles.get(item, [])
        if len(tiles) != rows * columns or any(self._kinds.get(tile) != _FRAME for tile in tiles):
            raise MalformedError("the AVIF's grid lacks tiles")
        sizes = {self.size(tile) for tile in tiles}
        wide, high = min(sizes)
        if (
            len(sizes) > 1
            or (width, height) != self.size(item)
            or not (columns - 1) * wide < width <= columns * wide
            or not (rows - 1) * high < height <= rows * high
        ):
            raise MalformedError("the AVIF's grid contradicts itself about the size")

    def _property(self, item: int, kind: bytes) -> Fields | None:
        found = [box for box in self._properties.get(item, ()) if box.kind == kind]
        if len(found) > 1:
            raise MalformedError(f"the AVIF gives a picture two {kind.decode()} properties")
        return Fields(self._data, found[0]) if found else None

    def _read_kinds(self, meta: Meta) -> dict[int, bytes]:
        fields, version, _ = meta.fields(self._data, b"iinf")
        fields.number(4 if version else 2)
        kinds: dict[int, bytes] = {}
        for box in boxes(self._data, fields.at, meta.boxes[b"iinf"].end):
            entry = Fields(self._data, box)
            layout, _ = entry.version()
            if box.kind != b"infe" or layout not in (2, 3):
                raise MalformedError("the AVIF has an item entry of an unknown kind")
            item = entry.number(2 if layout == 2 else 4)
            entry.number(2)
            kind = entry.number(4).to_bytes(4, "big")
            if item in kinds:
                raise MalformedError("the AVIF describes an item twice")
            kinds[item] = kind
            if kind not in (_FRAME, _GRID):
                meta.hidden.append(entry.at - 4)
        return kinds

    def _read_properties(self, meta: Meta) -> dict[int, list[Box]]:
        if b"iprp" not in meta.boxes:
            raise MalformedError("the AVIF lacks its iprp box")
        inside = list(boxes(self._data, meta.boxes[b"iprp"].body, meta.boxes[b"iprp"].end))
        if not inside or inside[0].kind != b"ipco":
            raise MalformedError("the AVIF has no properties")
        store, links = inside[0], inside[1:]
        known = list(boxes(self._data, store.body, store.end))
        # Colour profiles are ignored in every format; nclx names the colour transform and stays.
        profiles = [box.body for box in known if box.kind == b"colr"]
        meta.hidden += [at for at in profiles if self._data[at : at + 4] in (b"prof", b"rICC")]
        properties = defaultdict[int, list[Box]](list)
        room = _MOST
        for box in links:
            fields = Fields(self._data, box)
            version, flags = fields.version()
            if box.kind != b"ipma":
                raise MalformedError("the AVIF has no properties")
            for _ in range(_within(fields.number(4), room)):
                item, count = fields.number(4 if version else 2), fields.number(1)
                room -= _within(count + 1, room)
                for _ in range(count):
                    index = fields.number(2) & 0x7FFF if flags & 1 else fields.number(1) & 0x7F
                    if index > len(known):
                        raise MalformedError("the AVIF names a property that it does not have")
                    if index:
                        properties[item].append(known[index - 1])
        return properties

    def _read_extents(self, meta: Meta) -> dict[int, list[tuple[int, int]]]:
        fields, version, _ = meta.fields(self._data, b"iloc")
        sizes = fields.number(2)
        offset_size, length_size, base_size = sizes >> 12, sizes >> 8 & 15, sizes >> 4 & 15
        index_size = sizes & 15 if version else 0
        extents: dict[int, list[tuple[int, int]]] = {}
        room, total = _MOST, 0
        for _ in range(_within(fields.number(4 if version > 1 else 2), room)):
            item = fields.number(4 if version > 1 else 2)
            method = fields.number(2) & 15 if version else 0
            fields.number(2)
            base, count = fields.number(base_size), fields.number(2)
            room -= _within(count + 1, room)
            begin, end = self._source(meta, method)
            places: list[tuple[int, int]] = []
            for _ in range(count):
                fields.number(index_size)
                first, length = begin + base + fields.number(offset_size), fields.number(length_size)
                places.append((first, first + length))
                total += length
                if first + length > end:
                    raise MalformedError("the AVIF is cut off")
            if item in extents:
                raise MalformedError("the AVIF describes an item twice")
            extents[item] = places
        if total > 2 * len(self._data):  # items that share bytes would multiply them
            raise MalformedError("the AVIF uses its bytes again and again")
        return extents

    def _source(self, meta: Meta, method: int) -> tuple[int, int]:
        """Where extents count from, and what they may not pass."""
        if method == 0:
            return 0, len(self._data)
        if method == 1 and b"idat" in meta.boxes:
            return meta.boxes[b"idat"].body, meta.boxes[b"idat"].end
        raise MalformedError("the AVIF keeps a picture in an unknown place")

    def _read_tiles(self, meta: Meta) -> dict[int, list[int]]:
        if b"iref" not in meta.boxes:
            return {}
        fields, version, _ = meta.fields(self._data, b"iref")
        size, room = (4 if version else 2), _MOST
        tiles: dict[int, list[int]] = {}
        used = set[int]()
        for box in boxes(self._data, fields.at, meta.boxes[b"iref"].end):
            reference = Fields(self._data, box)
            item, count = reference.number(size), reference.number(2)
            room -= _within(count + 1, room)
            targets = [reference.number(size) for _ in range(count)]
            if box.kind == b"dimg" and self._kinds.get(item) == _GRID:
                if item in tiles or used.intersection(targets) or len(set(targets)) != count:
                    raise MalformedError("the AVIF's grid uses a tile twice")
                used.update(targets)
                tiles[item] = targets
        return tiles


def _within(count: int, room: int) -> int:
    if count > room:
        raise MalformedError("the AVIF describes too many items")
    return count
