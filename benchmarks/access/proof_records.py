"""What was measured, as values."""

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from proof_fronts import Shot

OWN = "this client"


@dataclass(frozen=True)
class Row:
    """One payload one way, once. CPU seconds over the idle rate; growth_mb: of the front, None where there is none."""

    payload: str
    front: str
    shot: Shot
    engines_s: float
    front_s: float | None
    growth_mb: float | None


@dataclass
class Incident:
    """Text at 4/s for a while through one front. ttfts_s: from the instant each was due; failed ones are infinite.

    beside: the photo that came every two seconds, or nothing. cores: CPU seconds a second in the window, by process.
    uploads, texts: how many ended how.
    """

    front: str
    beside: str
    seconds: float
    ttfts_s: list[float] = field(default_factory=list)
    texts: Counter[str] = field(default_factory=Counter)
    uploads: Counter[str] = field(default_factory=Counter)
    upload_ttfts_s: list[float] = field(default_factory=list)
    cores: dict[str, float] = field(default_factory=dict)

    def percentile(self, share: float) -> float:
        """By rank: no value is made up between one that came and one that did not."""
        ordered = sorted(self.ttfts_s)
        return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]


@dataclass
class Measured:
    """Everything that was seen. idle: cores, by process. sent_again: requests of the table that the pair failed."""

    rows: list[Row]
    incidents: list[Incident]
    idle: dict[str, float]
    sent_again: int


def median(values: Sequence[float]) -> float:
    """nan where there is none."""
    return statistics.median(values) if values else math.nan
