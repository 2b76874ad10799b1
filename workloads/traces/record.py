"""One request of a trace, and how a trace's mistake is told."""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from toolkit.core.errors import UsageFault


@dataclass(frozen=True, slots=True)
class TraceRecord:
    """at_s: seconds after the trace's first request. text_tokens: of the whole prompt, where `images` is 0.

    blocks: ids of the prompt's blocks of 512 tokens, where the trace names them; the same id is the same text, so a
    prompt that begins with blocks of an earlier one shares its prefix.
    """

    at_s: float
    text_tokens: int
    output_tokens: int
    images: int = 0
    blocks: tuple[int, ...] = ()


class TraceFault(UsageFault):
    """A trace file that cannot be read; `path` and `line` (from 1, 0 for the whole file) say where."""

    def __init__(self, path: Path, line: int, problem: str) -> None:
        super().__init__(f"{path}:{line}: {problem}" if line else f"{path}: {problem}")
        self.path = path
        self.line = line


@contextmanager
def opened(path: Path) -> Iterator[IO[str]]:
    """The text of the file, gunzipped where its name ends in .gz. Raises TraceFault."""
    try:
        with (
            gzip.open(path, "rt", encoding="utf-8")
            if path.suffix == ".gz"
            else path.open(encoding="utf-8") as lines
        ):
            yield lines
    except (OSError, EOFError) as error:
        raise TraceFault(path, 0, f"cannot be read ({getattr(error, 'strerror', None) or error}).") from error
    except UnicodeDecodeError as error:
        raise TraceFault(path, 0, f"not UTF-8 text ({error.reason} at byte {error.start}).") from error


def count_of(text: object) -> int:
    """A whole number, 0 or larger. Raises ValueError."""
    if isinstance(text, bool) or not isinstance(text, int | str):
        raise ValueError(f"{text!r} is no whole number")
    number = int(text)
    if number < 0:
        raise ValueError(f"{number} is under 0")
    return number
