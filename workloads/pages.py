"""Text-like pages: lines of dark words on paper, with headings and paragraphs; sharp edges, as scans and screenshots.

Drawing letters is slow, so each word is drawn once per size of letters, and pages are set from drawn words.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw, ImageFont

from toolkit.core.plan import ImageRecipe
from workloads.bases import once
from workloads.texts import compose_text

if TYPE_CHECKING:
    import numpy as np

    from workloads.bases import Bytes

HEADINGS = ("Report of the week", "Minutes of the meeting", "Terms of delivery", "Notes on the inspection")
SMALLEST_LETTERS = 8  # pixels
HEADING_SHARE = 0.25
PARAGRAPH_TOKENS = (40, 160)
INK = 24  # brightness of letters


def draw_page(recipe: ImageRecipe) -> Image.Image:
    """The page of that recipe's size and seed."""
    import numpy as np

    rng = np.random.default_rng(recipe.seed)
    width, height = recipe.width, recipe.height
    letters = _step(min(width, height) * float(rng.uniform(0.018, 0.03)))
    page = np.full((height, width), 255, np.uint8)
    margin = min(width, height) // 16
    inside = page[margin : height - margin, margin : width - margin]
    top = 0
    while top < len(inside):
        heading = float(rng.random()) < HEADING_SHARE
        size = _step(letters * 1.5) if heading else letters
        text = compose_text(HEADINGS, 12 if heading else int(rng.integers(*PARAGRAPH_TOKENS)), rng)
        for line in _lines(text, size, inside.shape[1]):
            for left, word in line:
                there = inside[top : top + len(word), left : left + word.shape[1]]
                there[...] = word[: there.shape[0], : there.shape[1]]
            top += round(size * 1.45)
            if heading or top >= len(inside):
                break
        top += letters
    return _on_paper(page, rng)


def _lines(text: str, letters: int, width: int) -> "Iterator[list[tuple[int, Bytes]]]":
    """The words of each line, with where they begin, in pixels. A word that is wider than a line has one of its own."""
    gap = max(2, round(letters * 0.28))
    line: list[tuple[int, Bytes]] = []
    left = 0
    for text_of_word in text.split():
        word = once(_word, text_of_word, letters)
        if line and left + word.shape[1] > width:
            yield line
            line, left = [], 0
        line.append((left, word))
        left += word.shape[1] + gap
    yield line


def _on_paper(page: "Bytes", rng: "np.random.Generator") -> Image.Image:
    light, *tint = (int(shade) for shade in rng.integers((238, 124, 124), (256, 133, 133)))
    ink = Image.fromarray(page).point([INK + round(value * (light - INK) / 255) for value in range(256)])
    return Image.merge("YCbCr", [ink, *(Image.new("L", ink.size, shade) for shade in tint)])


def _step(letters: float) -> int:
    """Sizes of letters go in steps of a tenth, so that few are drawn."""
    size = SMALLEST_LETTERS
    while size * 1.1 < letters:
        size = max(size + 1, round(size * 1.1))
    return size


def _word(word: str, letters: int) -> "Bytes":
    """Black on white."""
    import numpy as np

    font = once(_font, letters)
    ink = Image.new("L", (max(1, round(font.getlength(word))), round(font.getbbox("Hxg")[3])), 255)
    ImageDraw.Draw(ink).text((0, 0), word, fill=0, font=font)
    return np.asarray(ink)


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)
