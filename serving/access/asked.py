"""The images of a request as they were asked for: URLs as keys, equal ones, their names in errors."""

from collections.abc import Sequence

from serving.lifted import Lifted, head_of, samples
from toolkit.core.errors import ToolkitError


class Url:
    """A URL of up to megabytes as a key: hashed by samples, since hashing all of it would hold up the loop longer
    than the one comparison that an equal one costs."""

    __slots__ = ("_text",)

    def __init__(self, text: str | Lifted) -> None:
        self._text = text

    def __hash__(self) -> int:
        return hash(samples(self._text)) if isinstance(self._text, str) else hash(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Url) and self._text == other._text


def is_data(url: str | Lifted) -> bool:
    return head_of(url, 5).lower() == "data:"


def first_places(urls: Sequence[str | Lifted]) -> list[int]:
    """For each URL the place of its first equal. Compared, not hashed: hashing megabytes would hold up the loop."""
    return [next(place for place, other in enumerate(urls) if other == url) for url in urls]


def named(error: ToolkitError, name: str) -> ToolkitError:
    """The same error, saying which image."""
    return type(error)(
        f"{name}: {error.message}",
        code=error.code.code,
        param=error.param,
        retry_after_s=error.retry_after_s,
        hop=error.hop,
        action=error.action,
    )
