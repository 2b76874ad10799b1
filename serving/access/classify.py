"""What is asked, in one of four classes. The rule is total: every request has exactly one class."""

from collections.abc import Sequence

from toolkit.core.sample import WorkloadClass

LONG_TEXT_TOKENS = 1024
"""Text tokens above which a request with one image counts as long."""


def classify(images: Sequence[tuple[int, int]], text_tokens: int, high_res_pixels: int) -> WorkloadClass:
    """`images` are source sizes (width, height). The first rule that holds decides:

    no image: text_only; a source of at least `high_res_pixels`: high_res; two images or more, or one with
    more than 1,024 text tokens: multi_image_long; else image_short.
    """
    if not images:
        return WorkloadClass.TEXT_ONLY
    if any(width * height >= high_res_pixels for width, height in images):
        return WorkloadClass.HIGH_RES
    if len(images) > 1 or text_tokens > LONG_TEXT_TOKENS:
        return WorkloadClass.MULTI_IMAGE_LONG
    return WorkloadClass.IMAGE_SHORT
