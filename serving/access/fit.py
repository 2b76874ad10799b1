"""The largest images that fit: one smaller bound on the area of all images of a request. Pure.

The largest are scaled down first, to one size, and small ones stay as they are: that loses the least. Never below what the
model's own processor keeps as it is (its min_pixels), nor below a share of any image's tokens.
"""

from collections.abc import Sequence
from math import ceil

from serving.access.grid import ImageGrid

Size = tuple[int, int]


def fit(grid: ImageGrid, sizes: Sequence[Size], most_tokens: int, least_share: float) -> ImageGrid | None:
    """The grid with the largest bound at which images of these source sizes, pixels, have most_tokens together at most; `grid`
    itself where they do anyway, None where that needs less than least_share of the tokens of one of them."""
    usual = [grid.tokens(*size) for size in sizes]
    if sum(usual) <= most_tokens:
        return grid
    best, low, high = None, 0, max(usual) - 1
    while low < high:
        bound = (low + high + 1) // 2
        smaller = grid.within(bound)
        if smaller is not None and sum(smaller.tokens(*size) for size in sizes) > most_tokens:
            high = bound - 1
        else:
            best, low = smaller, bound
    if best is None or not all(
        _kept(grid, best, size) and best.tokens(*size) >= ceil(least_share * tokens)
        for size, tokens in zip(sizes, usual, strict=True)
    ):
        return None
    return best


def _kept(grid: ImageGrid, smaller: ImageGrid, size: Size) -> bool:
    """Whether the engine's processor leaves the smaller picture as it is, so that its tokens are those we count."""
    target = smaller.target_size(*size)
    return grid.target_size(*target) == target and grid.tokens(*target) == smaller.tokens(*size)
