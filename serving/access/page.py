"""docs/images.md, made from the table that tests hold the gateway to: `python -m serving.access.page [--check]`."""

import sys
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "images.md"


@dataclass(frozen=True, slots=True)
class Case:
    """A kind of image, what the gateway does with it, and the error code where it refuses."""

    name: str
    does: str
    code: str | None = None


TOO_LARGE, INVALID = "image_too_large", "image_invalid"

TAKEN = (
    Case(
        "JPEG: baseline or progressive",
        "decoded at a DCT scale of 3.4 times the target or more, then bicubic",
    ),
    Case("several JPEGs in one file (MPO)", "the first picture"),
    Case("PNG: interlaced or not", "decoded whole, then bicubic"),
    Case("WebP: lossy, lossless", "decoded whole, then bicubic"),
    Case("GIF", "decoded whole, then bicubic"),
    Case(
        "GIF whose first frame is smaller than its canvas",
        "the rest in the background colour, as the engine's own decoder has it",
    ),
    Case("AVIF: one frame", "decoded whole on one thread, then bicubic; a crop (`clap`) is not applied"),
    Case("AVIF of 10 or 12 bits", "scaled to 8 bits, without tone mapping"),
    Case("animated GIF, PNG, WebP or AVIF", "the first frame; AVIF: its still picture"),
    Case("Exif orientation 1 to 8 in JPEG, PNG or WebP", "turned upright before the resize"),
    Case("irot and imir in AVIF", "turned upright before the resize; Exif's field is void in this format"),
    Case("transparency, colour keys", "on white"),
    Case("16-bit grey or RGB, with or without alpha", "the upper 8 bits of each channel"),
    Case("1-bit, palette and grey", "the same colours in RGB"),
    Case("CMYK and YCCK JPEG", "plain conversion to RGB, without a colour profile"),
    Case("ICC profile, a PNG's gamma", "ignored: the numbers in the file are taken for sRGB"),
    Case("metadata and bytes after the picture", "left out before decoding; never travel on"),
    Case("side ratio of 200", "taken"),
)

REFUSED = (
    Case("more than `max_image_bytes`", "refused before anything is read", TOO_LARGE),
    Case("more than `max_image_pixels`", "refused from the header, in every format", TOO_LARGE),
    Case("side ratio over `max_side_ratio` (200)", "refused: processors of the Qwen-VL family fail", INVALID),
    Case("a side of 0", "refused", INVALID),
    Case(
        "JPEG of more than `max_sos_markers` scans",
        "refused: each scan decodes the whole picture again",
        INVALID,
    ),
    Case("JPEG header that claims more than its bytes can hold", "refused", INVALID),
    Case("AVIF whose AV1 stream or grid has another size than its box", "refused", INVALID),
    Case("AVIF of many frames in one picture", "refused, layered pictures too", INVALID),
    Case("millions of empty chunks, comments, blocks or boxes", "refused", INVALID),
    Case("cut off, in any format", "refused: never half a picture", INVALID),
    Case(
        "cut off behind a forged end marker (JPEG)",
        "refused where 8x8 blocks or whole scans are missing",
        INVALID,
    ),
    Case("damaged header or stream", "refused where its decoder or its checksum notices", INVALID),
    Case("JPEG with arithmetic or lossless coding, or of 12 bits", "refused", INVALID),
    Case("EPS, SVG, PDF or PSD", "refused: no such decoder is loaded", INVALID),
    Case("TIFF, BMP, ICO, PPM, TGA, JPEG 2000 or HEIC", "refused", INVALID),
    Case("a web page, a film, nothing at all", "refused", INVALID),
)


def images_page() -> str:
    """The page's text."""
    taken = [f"| {case.name} | {case.does} |" for case in TAKEN]
    refused = [f"| {case.name} | {case.does} | `{case.code}` |" for case in REFUSED]
    return "\n".join(
        [
            "# What happens to an image",
            "",
            "Made from `serving/access/page.py`, whose every row a test tries. Content decides: names and media types are",
            "not looked at. Limits are settings of `[access]`; `toolkit config show` names them.",
            "",
            "## Taken",
            "",
            "| case | what the gateway does |",
            "|---|---|",
            *taken,
            "",
            "## Refused",
            "",
            "Before any decoder runs, except for damage that only a decoder can see. Statuses are in [errors.md](errors.md).",
            "",
            "| case | what the gateway does | code |",
            "|---|---|---|",
            *refused,
            "",
            "Not seen: bytes changed inside a picture that still decode (JPEG, WebP and AVIF have no checksum), and a",
            "progressive JPEG cut inside its very last scan behind a forged end marker: less sharp from there on, never grey.",
            "",
            "## Handed over",
            "",
            "The engine gets a picture of exactly the size that its processor would choose, in RGB, as `access.handover` says: `ppm`,",
            "`png` and `webp` carry each pixel unchanged, `jpeg` leaves 40 to 47 dB. Against the processor's own pixels of the whole file",
            "([measured](../benchmarks/results/access-fidelity.md)): at a DCT scale 45 dB or more on photos and legible text, no level",
            "further than 17; without one, one level, with the extra `fast` none.",
            "",
        ]
    )


def main(arguments: list[str]) -> int:
    """Write the page, or with --check say whether it differs; 1 when it does."""
    if "--check" in arguments:
        return 0 if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == images_page() else 1
    PAGE.write_text(images_page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
