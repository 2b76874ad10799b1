"""Degrade to fit: the largest images that fit a budget of tokens, and none below its floors."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.access.fit import fit
from serving.access.grids import InternVLGrid, LlavaGrid, QwenGrid, TextGrid

QWEN = QwenGrid("qwen2_5_vl", factor=28, min_pixels=56 * 56, max_pixels=28 * 28 * 1280)
PHOTO, ICON = (4000, 3000), (224, 224)


def tokens(grid, sizes):
    return sum(grid.tokens(*size) for size in sizes)


def test_images_that_fit_stay_as_they_are():
    """The very grid of the model."""
    assert fit(QWEN, [PHOTO, ICON], 5000, 0.25) is QWEN
    assert fit(TextGrid(), [], 0, 0.25) == TextGrid()


def test_the_largest_are_scaled_down_to_one_size_and_the_small_ones_not_at_all():
    """Four photos of 1,200 tokens each and an icon into 2,500."""
    sizes = [PHOTO] * 4 + [ICON]
    smaller = fit(QWEN, sizes, 2500, 0.25)

    assert smaller is not None
    assert 2300 <= tokens(smaller, sizes) <= 2500
    assert smaller.tokens(*ICON) == QWEN.tokens(*ICON)
    assert len({smaller.tokens(*size) for size in sizes[:4]}) == 1


def test_never_below_a_share_of_the_tokens_of_any_image():
    """Half of 1,200 fits 2,500 tokens for four, a quarter less does not."""
    assert fit(QWEN, [PHOTO] * 4, 2500, 0.4) is not None
    assert fit(QWEN, [PHOTO] * 4, 2500, 0.6) is None


def test_never_below_what_the_models_processor_would_enlarge_again():
    """min_pixels: 56 x 56, four tokens."""
    assert fit(QWEN, [ICON], 3, 0.0) is None


@pytest.mark.parametrize("grid", [LlavaGrid(), InternVLGrid()])
def test_models_whose_tokens_do_not_follow_the_size_have_nothing_smaller(grid):
    """LLaVA has one size; InternVL's tiles follow the shape alone."""
    assert fit(grid, [PHOTO] * 2, 600, 0.0) is None


@given(
    sizes=st.lists(st.tuples(st.integers(20, 3000), st.integers(20, 3000)), min_size=1, max_size=6),
    share=st.floats(0.02, 1.2),
    least_share=st.sampled_from([0.0, 0.25, 0.7]),
    factor=st.sampled_from([28, 32]),
)
@settings(max_examples=150, deadline=None)
def test_what_fits_is_within_the_budget_and_kept_by_the_engine(sizes, share, least_share, factor):
    """Whatever the sizes: our count of the smaller pictures is the engine's own."""
    grid = QwenGrid("qwen2_5_vl", factor, 4 * factor**2, 1280 * factor**2)
    budget = int(share * tokens(grid, sizes))
    smaller = fit(grid, sizes, budget, least_share)

    if smaller is None:
        assert share < 1
        return
    assert tokens(smaller, sizes) <= budget
    for size in sizes:
        target = smaller.target_size(*size)
        assert grid.tokens(*target) == smaller.tokens(*size) >= least_share * grid.tokens(*size) - 1e-9
        assert grid.target_size(*target) == target
