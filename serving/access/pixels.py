"""Decoded pixels in memory of their own, which is given back row by row while they are read.

Pillow keeps RGB as four bytes a pixel and all of them until the picture goes: 192 MB for 48 MP.
"""

import mmap
from typing import cast

from PIL import Image

_STEP = 2 << 20  # memory comes and goes in huge pages, where the kernel has them


class Pixels:
    """Rows of 8-bit RGB (3 bands), or of RGB and either alpha or nothing (4 bands), first row first, unpadded."""

    def __init__(self, width: int, height: int, bands: int, alpha: bool = False) -> None:
        self.size = (width, height)
        self.alpha = alpha
        self.bands = bands
        self.buffer = mmap.mmap(-1, width * height * bands, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.buffer.madvise(mmap.MADV_HUGEPAGE)
        self._given_back = 0

    def rows(self, top: int, bottom: int) -> Image.Image:
        """RGB of 3 bands; of 4 RGBA, a view of this memory that must not be changed.

        Rows above `top` are gone from then on.
        """
        stride = self.size[0] * self.bands
        self._give_back(top * stride)
        mode, size = ("RGB" if self.bands == 3 else "RGBA"), (self.size[0], bottom - top)
        part = memoryview(self.buffer)[top * stride : bottom * stride]
        if self.bands == 3:
            return Image.frombytes(mode, size, part)
        return Image.frombuffer(mode, size, cast("bytes", part), "raw", mode, 0, 1)

    def _give_back(self, end: int) -> None:
        end -= end % _STEP
        if end > self._given_back:
            self.buffer.madvise(mmap.MADV_DONTNEED, self._given_back, end - self._given_back)
            self._given_back = end
