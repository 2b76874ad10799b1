"""A recipe's picture as JPEG bytes, and files as they are.

Making pictures must not cost much more than encoding them: a soak asks for thousands of megapixels. So each picture
is cut, at a place of its own, from bases that are made once in a process (scenes.py, photographs.py, pages.py).
"""

import hashlib
import io
from pathlib import Path

from toolkit.core.errors import UsageFault
from toolkit.core.plan import ImageRecipe
from workloads import bases
from workloads.pages import draw_page
from workloads.photographs import draw_photograph
from workloads.scenes import draw_scene

forget_bases = bases.forget


def encode(recipe: ImageRecipe) -> bytes:
    """The recipe's picture as JPEG; the same recipe gives the same bytes with the same numpy and Pillow.

    A file's bytes are the file's. Raises UsageFault when it is not the one that was planned any more.
    """
    if recipe.source == "file":
        return _file(recipe)
    drawn = {"natural": draw_scene, "page": draw_page}.get(recipe.source, draw_photograph)
    out = io.BytesIO()
    drawn(recipe).save(out, "JPEG", quality=recipe.quality)
    return out.getvalue()


def _file(recipe: ImageRecipe) -> bytes:
    try:
        data = Path(recipe.file).read_bytes()
    except OSError as error:
        raise UsageFault(f"{recipe.file}: cannot be read ({error.strerror}).") from error
    if hashlib.sha256(data).hexdigest() != recipe.sha256:
        raise UsageFault(f"{recipe.file}: not the image that was planned (its SHA-256 has changed).")
    return data
