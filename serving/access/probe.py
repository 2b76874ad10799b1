"""What an image is, from its header; everything over a limit is refused here, before any decode."""

from PIL import Image

from serving.access.formats import MalformedError, Structure, walk
from serving.access.grids import NARROW
from serving.access.header import ImageHeader
from serving.access.pillow import READ_ERRORS
from serving.config import AccessConfig
from toolkit.core.errors import InvalidRequest, TooLarge


def probe(data: bytes, limits: AccessConfig) -> ImageHeader:
    """The header of an image, by content: names and media types are not looked at.

    Raises TooLarge(image_too_large) over the byte and pixel limits, InvalidRequest(image_invalid) otherwise.
    """
    if len(data) > limits.max_image_bytes:
        raise _too_large(f"the image has {len(data)} bytes; the limit is {limits.max_image_bytes}")
    if not data:
        raise _invalid("the image is empty")
    try:
        structure = walk(data)
    except MalformedError as error:
        raise _invalid(str(error)) from error
    _check(structure, limits)
    return ImageHeader(
        format=structure.format,
        width=structure.width,
        height=structure.height,
        orientation=structure.orientation,
        mode=_mode(structure),
        progressive=structure.progressive,
        size_bytes=len(data),
        scans=structure.scans,
        blocks=structure.blocks,
        variant=structure.variant,
    )


def _check(claim: Structure, limits: AccessConfig) -> None:
    width, height = claim.width, claim.height
    if width == 0 or height == 0:
        raise _invalid(f"the image is {width}x{height}")
    if width * height > limits.max_image_pixels:
        pixels = width * height
        raise _too_large(
            f"the image is {width}x{height}, {pixels} pixels; the limit is {limits.max_image_pixels}"
        )
    ratio = max(width, height) / min(width, height)
    if ratio > limits.max_side_ratio:
        limit = f"{limits.max_side_ratio:g}"
        raise _invalid(
            f"the image is {width}x{height}, a side ratio of {ratio:.1f}; the limit is {limit}", NARROW
        )
    if claim.scans > limits.max_sos_markers:
        raise _invalid(
            f"the JPEG has {claim.scans} scans; the limit is {limits.max_sos_markers}",
            "Save the image as a baseline JPEG or as PNG.",
        )


def _mode(claim: Structure) -> str:
    """The pixel mode, read by the decoder itself, which must see the same picture as our walk."""
    try:
        with Image.open(claim.file(), formats=[claim.format]) as image:
            if image.size != (claim.width, claim.height):
                raise _invalid(f"the {claim.format} header contradicts itself about the size")
            return image.mode
    except READ_ERRORS as error:
        raise _invalid(f"the {claim.format} header cannot be read") from error


def _too_large(reason: str) -> TooLarge:
    return TooLarge(f"{reason}.", code="image_too_large")


def _invalid(reason: str, action: str = "") -> InvalidRequest:
    return InvalidRequest(f"{reason}.", code="image_invalid", action=action)
