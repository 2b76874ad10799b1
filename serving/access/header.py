"""What is known of an image before any decode. Imported by the decoding process too, so it pulls in nothing."""

from dataclasses import dataclass

from serving.access.formats import Format, Variant

SWAPPED = frozenset([5, 6, 7, 8])
"""Exif orientations whose upright picture has the stored sides swapped."""


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """An image that keeps every limit.

    width, height: pixels as stored; orientation: Exif 1 to 8; mode: Pillow's; progressive, scans (SOS markers) and
    blocks (of 8x8 coefficients, all components): JPEG only. variant: WebP only.
    """

    format: Format
    width: int
    height: int
    orientation: int
    mode: str
    progressive: bool
    size_bytes: int
    scans: int = 0
    blocks: int = 0
    variant: Variant = ""

    @property
    def size(self) -> tuple[int, int]:
        """(width, height) of the upright picture."""
        return (self.height, self.width) if self.orientation in SWAPPED else (self.width, self.height)

    @property
    def pixels(self) -> int:
        return self.width * self.height
