"""Every request has exactly one class, by a rule that the gateway and the workloads share."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.access.classify import classify as gateways
from serving.config import AccessConfig
from toolkit.core.classify import HIGH_RES_PIXELS, classify, length_of, tokens_in
from toolkit.core.sample import WorkloadClass

SMALL, LARGE = (640, 480), (4032, 3024)


@pytest.mark.parametrize(
    ("images", "tokens", "expected"),
    [
        ([], 0, "text_only"),
        ([], 2048, "text_only"),
        ([SMALL], 0, "image_short"),
        ([SMALL], 512, "image_short"),
        ([SMALL], 2047, "image_short"),
        ([SMALL], 2048, "multi_image_long"),
        ([SMALL] * 2, 0, "multi_image_long"),
        ([SMALL] * 16, 9999, "multi_image_long"),
        ([(2000, 2000)], 0, "high_res"),
        ([(2000, 1999)], 0, "image_short"),
        ([LARGE], 2048, "high_res"),
        ([SMALL, LARGE], 0, "high_res"),
    ],
)
def test_the_first_rule_that_holds_decides(images, tokens, expected):
    """No image; a large one; several, or a long text; else short."""
    assert classify(images, tokens) is WorkloadClass(expected)


@given(st.lists(st.tuples(st.integers(1, 10**5), st.integers(1, 10**5)), max_size=20), st.integers(0, 10**7))
def test_every_request_has_a_class(images, tokens):
    """Whatever the numbers are, one of the four."""
    assert classify(images, tokens) in set(WorkloadClass) - {WorkloadClass.UNCLASSIFIED}


@pytest.mark.parametrize(
    ("tokens", "length"),
    [(0, "short"), (512, "short"), (513, "medium"), (2047, "medium"), (2048, "long"), (10**6, "long")],
)
def test_lengths_have_edges(tokens, length):
    """Short up to 512, long from 2,048."""
    assert length_of(tokens) == length


def test_the_gateway_has_the_same_rule():
    """One function, and the gateway's default bound for large images is the workloads'."""
    assert gateways is classify
    assert AccessConfig().high_res_pixels == HIGH_RES_PIXELS
    assert [tokens_in(size) for size in (0, 1, 3, 4)] == [0, 1, 1, 2]
