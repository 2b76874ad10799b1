"""What is asked, in one of four classes. The rule is total: every request has exactly one class.

One rule for the gateway, which sees requests, and for the workloads, which make them: what a report calls high_res is
what the gateway calls high_res.
"""

from collections.abc import Sequence
from typing import Literal

from toolkit.core.sample import WorkloadClass

SHORT_TEXT_TOKENS = 512
"""Estimated text tokens up to which a text is short."""

LONG_TEXT_TOKENS = 2048
"""Estimated text tokens from which a text is long, and from which a request with one image counts as long."""

HIGH_RES_PIXELS = 4_000_000
"""Source pixels from which an image is large, unless the gateway is configured otherwise."""

BYTES_PER_TOKEN = 3
"""UTF-8 bytes counted as one token.

English is 4 to 4.5 bytes a token in today's byte-pair vocabularies and Chinese 3 to 6 (three bytes a
character, 1 to 2 characters a token), so 3 leans to the upper side for prose. Digits, dense code and rare scripts
can be up to one token a byte: this estimate sorts requests, it does not bound them.
"""


def tokens_in(size_bytes: int) -> int:
    """Estimated prompt tokens of that many bytes of UTF-8 text, rounded up, without the chat template's own."""
    return -(-size_bytes // BYTES_PER_TOKEN)


def length_of(text_tokens: int) -> Literal["short", "medium", "long"]:
    """How long a text is, whatever it comes with."""
    if text_tokens <= SHORT_TEXT_TOKENS:
        return "short"
    return "long" if text_tokens >= LONG_TEXT_TOKENS else "medium"


def classify(
    images: Sequence[tuple[int, int]], text_tokens: int, high_res_pixels: int = HIGH_RES_PIXELS
) -> WorkloadClass:
    """`images` are source sizes (width, height). The first rule that holds decides:

    no image: text_only; a source of at least `high_res_pixels`: high_res; two images or more, or one with
    a long text: multi_image_long; else image_short.
    """
    if not images:
        return WorkloadClass.TEXT_ONLY
    if any(width * height >= high_res_pixels for width, height in images):
        return WorkloadClass.HIGH_RES
    if len(images) > 1 or length_of(text_tokens) == "long":
        return WorkloadClass.MULTI_IMAGE_LONG
    return WorkloadClass.IMAGE_SHORT
