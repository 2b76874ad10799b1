"""Slices read as one file behave as the file they would make."""

import io
import random

import pytest

from serving.access.formats.joined import Joined


def test_reads_and_seeks_are_those_of_the_whole() -> None:
    """Empty slices, reads over several, beyond the end, backwards."""
    stream = random.Random(1)
    for _ in range(50):
        whole = stream.randbytes(stream.randrange(200))
        cuts = sorted(stream.choices(range(len(whole) + 1), k=5))
        parts = [memoryview(whole)[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
        ours, plain = Joined(parts), io.BytesIO(whole)
        for _ in range(20):
            if stream.random() < 0.4:
                place = stream.randrange(len(whole) + 10)
                assert ours.seek(place) == plain.seek(place)
            size = stream.choice((-1, 0, 1, 7, 64, 1000))
            assert ours.read(size) == plain.read(size)
            assert ours.tell() == plain.tell()
        assert ours.seek(-len(whole), io.SEEK_END) == 0


def test_no_place_before_the_first_byte() -> None:
    with pytest.raises(ValueError, match="no byte at -3"):
        Joined([b"abc"]).seek(-3)
