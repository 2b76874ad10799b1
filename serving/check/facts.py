"""What the check knows, as plain values. None or empty: it could not be told here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from serving.access.grid import ImageGrid
from serving.check.arguments import Arguments
from serving.config import ServeConfig

Role = Literal["prefill", "decode"]
Kind = Literal["gpu", "cpu", "simulated"]

LARGE = ((8000, 8000), (8000, 6000))
"""Image sizes that take the most tokens and the most pixels: a square for Qwen-VL, twelve tiles for InternVL."""


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine that would be started.

    flags: its arguments by their full names, each with its values; what was said last. environment: all its process will
    see. imposed: the part of it that `toolkit serve` sets, over what is there. attached: it runs already, and its environment
    is not known.
    """

    name: str
    role: Role
    kind: Kind
    flags: Mapping[str, tuple[str, ...]]
    environment: Mapping[str, str]
    imposed: Mapping[str, str]
    attached: bool = False

    def has(self, flag: str) -> bool:
        """Whether the flag was given, with or without a value."""
        return flag in self.flags

    def value(self, flag: str, default: str = "") -> str:
        """The flag's first value."""
        return next(iter(self.flags.get(flag, ())), default)

    def number(self, flag: str) -> float | None:
        """The flag's value as a number; None where it was not given or is none."""
        return _number(self.value(flag))

    def seconds(self, variable: str, default: float) -> float:
        """A time from the environment; what is no number counts as not set."""
        found = _number(self.environment.get(variable, ""))
        return default if found is None else found

    def switched_on(self, variable: str, default: bool) -> bool:
        """A switch from the environment, as SGLang reads it (sglang/srt/environ.py)."""
        text = self.environment.get(variable, "").lower()
        return text in ("true", "1", "yes", "y") if text else default


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything, once. attached: engines run already; `engines` are those that told how they were started."""

    config: ServeConfig
    engines: tuple[Engine, ...] = ()
    attached: bool = False
    pairs: int = 1
    model: Mapping[str, Any] = field(default_factory=dict)
    grid: ImageGrid | None = None
    arguments: Arguments | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def real(self) -> tuple[Engine, ...]:
        """The engines that are SGLang."""
        return tuple(engine for engine in self.engines if engine.kind != "simulated")

    @property
    def ours(self) -> tuple[Engine, ...]:
        """Those that `toolkit serve` starts, with an environment that is known."""
        return tuple(engine for engine in self.real if not engine.attached)

    def of(self, role: Role) -> tuple[Engine, ...]:
        """The SGLang engines of one role."""
        return tuple(engine for engine in self.real if engine.role == role)

    @property
    def sees(self) -> bool:
        """Whether the model takes images; True while it is not known."""
        return self.grid is None or self.grid.family != "text"

    @property
    def largest_tokens(self) -> int:
        """Most tokens that one image takes; 0 where that is not known or none is taken."""
        if self.grid is None or not self.sees:
            return 0
        return max(self.grid.tokens(width, height) for width, height in LARGE)

    @property
    def largest_pixels(self) -> int:
        """Most pixels that one image is handed over with; 0 as above."""
        if self.grid is None or not self.sees:
            return 0
        return max(width * height for width, height in (self.grid.target_size(*size) for size in LARGE))


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
