"""What decodes JPEGs and scales pictures: Pillow alone, or the libraries of the extra `fast`. Chosen once, at start."""

from functools import cache
from typing import Literal, Protocol

from PIL import Image

from serving.access.header import ImageHeader
from serving.access.portable import Portable
from serving.access.scale import Resizer
from toolkit.core.errors import EnvironmentFault

Choice = Literal["auto", "portable", "fast"]


class Decoder(Resizer, Protocol):
    """Two ways to the same picture, within one level of each other. Stateless: any number of threads may use it."""

    @property
    def name(self) -> Literal["portable", "fast"]: ...

    @property
    def libraries(self) -> tuple[str, ...]:
        """Those that decide on pixels, with their versions."""
        ...

    def jpeg(
        self, data: bytes, header: ImageHeader, shrink: int, size: tuple[int, int], down_first: bool
    ) -> Image.Image:
        """The JPEG at 1/shrink (1, 2, 4 or 8), then scaled to `size`, as stored; RGB or L.

        Raises one of pillow.READ_ERRORS where it does not decode to its end.
        """
        ...


@cache
def choose(choice: Choice) -> Decoder:
    """The decoder of this process, which loads its libraries the first time. auto: fast where its libraries are there and agree with Pillow.

    Raises EnvironmentFault where `fast` is asked for and cannot be had.
    """
    if choice == "portable":
        return Portable()
    try:
        from serving.access.fast import Fast

        return Fast()
    except (ImportError, RuntimeError) as error:
        if choice == "auto":
            return Portable()
        raise EnvironmentFault(
            f"access.decoder = fast: {error}. Install the extra: pip install 'mm-serving-toolkit[fast]', or choose auto."
        ) from error
