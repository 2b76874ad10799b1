"""Every request has exactly one workload class."""

import pytest

from serving.access.classify import classify
from toolkit.core.classify import tokens_in
from toolkit.core.sample import WorkloadClass


@pytest.mark.parametrize(
    ("images", "text_tokens", "expected"),
    [
        ([], 0, "text_only"),
        ([], 9999, "text_only"),
        ([(336, 336)], 2047, "image_short"),
        ([(336, 336)], 2048, "multi_image_long"),
        ([(336, 336)] * 2, 10, "multi_image_long"),
        ([(2000, 2000)], 10, "high_res"),
        ([(2000, 1999)], 10, "image_short"),
        ([(10, 10), (8000, 6000)], 9999, "high_res"),
    ],
)
def test_first_rule_that_holds_decides(
    images: list[tuple[int, int]], text_tokens: int, expected: str
) -> None:
    """No image, a large source, several images or much text, else short."""
    assert classify(images, text_tokens, high_res_pixels=4_000_000) == WorkloadClass(expected)


def test_text_estimate_leans_up() -> None:
    """Three bytes a token, rounded up."""
    assert [tokens_in(size) for size in (0, 1, 3, 4, 3000)] == [0, 1, 1, 2, 1000]
