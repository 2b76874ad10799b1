"""The head of an AV1 still: the size that the decoder will take, and that there is one frame and no more.

The decoder believes these bits, not the container's: a stream of 268 megapixels in a file that says 64x64, or a
thousand hidden frames before the one that shows, would be decoded first and found out afterwards.
"""

from serving.access.formats.structure import MalformedError

_SEQUENCE, _DELIMITER, _FRAME_HEADER, _TILES, _METADATA, _FRAME, _PADDING = 1, 2, 3, 4, 5, 6, 15
_HARMLESS = frozenset([_DELIMITER, _TILES, _METADATA, _PADDING])
_MOST_UNITS = 1024
_HEAD_BYTES = 256  # a sequence header of 32 operating points has about 100
_CHOSEN_LATER = 2  # the sequence leaves a switch to each frame


class _Bits:
    def __init__(self, data: bytes) -> None:
        self._value = int.from_bytes(data, "big")
        self._left = 8 * len(data)

    def take(self, count: int) -> int:
        self._left -= count
        if self._left < 0:
            raise MalformedError("the AVIF's picture ends inside its header")
        return self._value >> self._left & (1 << count) - 1

    def on(self) -> bool:
        return self.take(1) == 1


class _Sequence:
    """The fields of a sequence header up to what a key frame's own header depends on."""

    def __init__(self, bits: _Bits) -> None:
        bits.take(4)  # profile, still picture
        self.reduced = bits.on()
        if self.reduced:
            bits.take(5)
        else:
            self._operating_points(bits)
        wide, high = bits.take(4) + 1, bits.take(4) + 1
        self.size = bits.take(wide) + 1, bits.take(high) + 1
        self.frame_id_bits = 0
        self.screen_content = self.integer_motion = _CHOSEN_LATER
        if self.reduced:
            return
        if bits.on():
            self.frame_id_bits = bits.take(4) + 2 + bits.take(3) + 1
        bits.take(7)  # block size, filters, compound and motion tools
        if bits.on():  # order hints
            bits.take(2)
        if not bits.on():
            self.screen_content = bits.take(1)
        if self.screen_content and not bits.on():
            self.integer_motion = bits.take(1)

    def _operating_points(self, bits: _Bits) -> None:
        if bits.on():
            raise MalformedError("the AVIF's picture has a film's timing")
        delays = bits.on()
        for _ in range(bits.take(5) + 1):
            bits.take(12)
            if bits.take(5) > 7:
                bits.take(1)
            if delays and bits.on():
                bits.take(4)


def size_of(stream: bytes | memoryview) -> tuple[int, int]:
    """(width, height) of the only frame of an item's data.

    Raises MalformedError for anything but a sequence header and one key frame of its size.
    """
    sequence: _Sequence | None = None
    frames = position = 0
    for _ in range(_MOST_UNITS):
        if position == len(stream):
            break
        kind, begin, position = _unit(stream, position)
        head = _Bits(bytes(stream[begin : min(position, begin + _HEAD_BYTES)]))
        if kind == _SEQUENCE and sequence is None:
            sequence = _Sequence(head)
        elif kind in (_FRAME, _FRAME_HEADER) and sequence is not None:
            _check_frame(head, sequence)
            frames += 1
        elif kind not in _HARMLESS:
            raise MalformedError("the AVIF's picture is not a single AV1 frame")
    if sequence is None or frames != 1 or position != len(stream):
        raise MalformedError("the AVIF's picture is not a single AV1 frame")
    return sequence.size


def _unit(stream: bytes | memoryview, position: int) -> tuple[int, int, int]:
    """(kind, begin, end) of the unit at `position`."""
    head = stream[position]
    position += 2 if head & 4 else 1
    size = len(stream) - position
    if head & 2:
        size = shift = 0
        while shift < 56:
            byte = stream[position]
            position += 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
    if head & 0x80 or size < 0 or position + size > len(stream):
        raise MalformedError("the AVIF's picture is cut off")
    return head >> 3 & 15, position, position + size


def _check_frame(bits: _Bits, sequence: _Sequence) -> None:
    """A shown key frame that keeps the sequence's size; it could name any other of up to 65,536 a side."""
    if sequence.reduced:
        return
    existing, key, shown = bits.on(), bits.take(2) == 0, bits.on()
    bits.take(1)
    screen = sequence.screen_content
    if screen == _CHOSEN_LATER:
        screen = bits.take(1)
    if screen and sequence.integer_motion == _CHOSEN_LATER:
        bits.take(1)
    bits.take(sequence.frame_id_bits)
    if existing or not key or not shown or bits.on():
        raise MalformedError("the AVIF's picture is not a key frame of its own size")
