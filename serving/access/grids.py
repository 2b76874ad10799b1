"""The size and the prompt tokens of an image, as the served model's own processor chooses them.

Sizes are fixed points: the processor, given an image of `target_size`, keeps it. So the engine's resize does
nothing, and `tokens` is what the engine counts. Counts follow SGLang, not the model cards.
"""

from dataclasses import dataclass, replace

from serving.access.smart_resize import SideRatioError, smart_resize
from toolkit.core.errors import InvalidRequest

NARROW = "Crop the image, pad it, or cut it into several: its longer side is too many times its shorter one."
"""What to do about a side ratio that no processor takes."""


@dataclass(frozen=True, slots=True)
class QwenGrid:
    """Qwen2-VL, Qwen2.5-VL (patch 14) and Qwen3-VL (patch 16); one token per merged patch.

    With bounds of a few hundred patches the processor's rule overshoots them for narrow images and would resize
    its own result again; then the size at which it settles is taken.
    """

    family: str
    factor: int
    min_pixels: int
    max_pixels: int

    _MOST_STEPS = 16

    def target_size(self, width: int, height: int) -> tuple[int, int]:
        size = (width, height)
        try:
            for _ in range(self._MOST_STEPS):
                chosen = self._chosen(size)
                if chosen == size:
                    break
                size = chosen
        except SideRatioError as error:
            raise InvalidRequest(
                f"the image is {width}x{height}; the model takes no side ratio above 200"
                f" (here {error.ratio:.1f} on its grid of {self.factor} pixels).",
                code="image_invalid",
                action=NARROW,
            ) from error
        return size

    def tokens(self, width: int, height: int) -> int:
        # Bounds that are equal never settle; the engine's own last resize then decides.
        wide, high = self._chosen(self.target_size(width, height))
        return (wide // self.factor) * (high // self.factor)

    def within(self, tokens: int) -> "QwenGrid | None":
        largest = min(self.max_pixels, tokens * self.factor**2)
        return replace(self, max_pixels=largest) if largest >= max(self.min_pixels, self.factor**2) else None

    def _chosen(self, size: tuple[int, int]) -> tuple[int, int]:
        return smart_resize(*size, self.factor, self.min_pixels, self.max_pixels)


@dataclass(frozen=True, slots=True)
class LlavaGrid:
    """LLaVA-1.5: a square of `side`, cut from the middle (`pad` False) or filled up with grey (`pad` True).

    The cut or the filling stays the engine's work; only the scale is ours.
    """

    side: int = 336
    patch: int = 14
    pad: bool = False

    # The middle square of a longer image shows under 1 % of it, and all of it would travel, 33,600 px long.
    _MAX_RATIO = 100

    @property
    def family(self) -> str:
        return "llava"

    def target_size(self, width: int, height: int) -> tuple[int, int]:
        short, long = min(width, height), max(width, height)
        if long / short > self._MAX_RATIO:
            raise InvalidRequest(
                f"the image is {width}x{height}; side ratios above {self._MAX_RATIO} are not taken"
                f" (here {long / short:.1f}).",
                code="image_invalid",
                action=NARROW,
            )
        if self.pad:
            short, long = max(1, round(self.side * short / long)), self.side
        else:
            short, long = self.side, int(self.side * long / short)
        return (short, long) if width <= height else (long, short)

    def tokens(self, width: int, height: int) -> int:
        self.target_size(width, height)
        return (self.side // self.patch) ** 2

    def within(self, tokens: int) -> "LlavaGrid | None":
        return self if (self.side // self.patch) ** 2 <= tokens else None


@dataclass(frozen=True, slots=True)
class InternVLGrid:
    """InternVL 2.x and 3: square tiles, plus one thumbnail where there are several.

    SGLang's `InternVLProcessor.dynamic_preprocess` breaks ties between equal shapes by more tiles, whatever
    the image's area: 336x336 becomes 3x3 tiles there (2,560 tokens), and one tile in the model's own code.
    """

    tile: int = 448
    tokens_per_tile: int = 256
    max_tiles: int = 12

    @property
    def family(self) -> str:
        return "internvl_chat"

    def shape(self, width: int, height: int) -> tuple[int, int]:
        """(columns, rows) of tiles."""
        ratio = width / height
        best, best_gap = (1, 1), float("inf")
        sides = range(1, self.max_tiles + 1)
        shapes = ((c, r) for c in sides for r in sides if c * r <= self.max_tiles)
        for columns, rows in sorted(shapes, key=lambda shape: shape[0] * shape[1]):
            gap = abs(ratio - columns / rows)
            if gap < best_gap or (gap == best_gap and columns * rows > best[0] * best[1]):
                best, best_gap = (columns, rows), gap
        return best

    def target_size(self, width: int, height: int) -> tuple[int, int]:
        columns, rows = self.shape(width, height)
        return columns * self.tile, rows * self.tile

    def tokens(self, width: int, height: int) -> int:
        columns, rows = self.shape(width, height)
        tiles = columns * rows
        return self.tokens_per_tile * (tiles + 1 if tiles > 1 else tiles)

    def within(self, tokens: int) -> "InternVLGrid | None":
        # The engine cuts its tiles by the shape alone, however small the image.
        return self if self.tokens_per_tile * (self.max_tiles + 1) <= tokens else None


@dataclass(frozen=True, slots=True)
class TextGrid:
    """A model without eyes."""

    @property
    def family(self) -> str:
        return "text"

    def target_size(self, width: int, height: int) -> tuple[int, int]:
        raise InvalidRequest(f"the served model takes text only, not a {width}x{height} image.")

    def tokens(self, width: int, height: int) -> int:
        return self.target_size(width, height)[0]

    def within(self, tokens: int) -> "TextGrid | None":  # noqa: ARG002 (it has no images to make smaller)
        return self
