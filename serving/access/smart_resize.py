"""The size the Qwen-VL image processors choose: both sides a multiple of `factor`, the area within bounds.

The same arithmetic as `smart_resize` of transformers' `qwen2_vl` image processors, which SGLang runs for
Qwen2-VL, Qwen2.5-VL and Qwen3-VL: Python's round (half to even), floor when shrinking, ceil when growing.
"""

import math

MAX_RATIO = 200
"""Longer side / shorter side above which the processors raise."""


class SideRatioError(ValueError):
    """The sides differ by more than the processors accept. `ratio` says by how much."""

    def __init__(self, width: int, height: int) -> None:
        self.ratio = max(width, height) / min(width, height)
        super().__init__(f"{width}x{height} has a side ratio of {self.ratio:.1f}")


def smart_resize(width: int, height: int, factor: int, min_pixels: int, max_pixels: int) -> tuple[int, int]:
    """(width, height) after the processor's resize. Raises SideRatioError."""
    if max(width, height) / min(width, height) > MAX_RATIO:
        raise SideRatioError(width, height)
    new_height = round(height / factor) * factor
    new_width = round(width / factor) * factor
    if new_height * new_width > max_pixels:
        beta = math.sqrt((height * width) / max_pixels)
        new_height = max(factor, math.floor(height / beta / factor) * factor)
        new_width = max(factor, math.floor(width / beta / factor) * factor)
    elif new_height * new_width < min_pixels:
        beta = math.sqrt(min_pixels / (height * width))
        new_height = math.ceil(height * beta / factor) * factor
        new_width = math.ceil(width * beta / factor) * factor
    return new_width, new_height
