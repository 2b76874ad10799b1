"""Clients that come back: who was told to try again later does, once it is later.

A server that sheds with a Retry-After promises a place to those who wait. Whether it keeps that promise shows only when
somebody returns (RFC 9110, section 10.2.3: seconds, or a date). A return is an attempt of its own and never an offer more.
"""

from email.utils import parsedate_to_datetime

from pydantic import Field

from toolkit.core.config import Section
from toolkit.core.seed import Seeds
from workloads.record import LoadOutcome, LoadSample

COME_BACK = frozenset({429, 503})
MAX_DIGITS = 9  # 30 years; int() of a longer text is work for nothing


class Returning(Section):
    """Clients that come back after a 429 or 503 with a Retry-After."""

    tries: int = Field(0, ge=0, description="How often a client comes back; 0: never.")
    share: float = Field(1.0, ge=0, le=1, description="Share of the clients that come back at all.")
    jitter_s: float = Field(
        1.0,
        ge=0,
        description="Longest time that a client adds to the delay it was told, seconds; each adds its own, or all who "
        "were told the same second would come as one.",
    )


class Returns:
    """When each refused client comes back. Seeded: the same refusals give the same returns."""

    def __init__(self, asked: Returning, seed: int) -> None:
        self._asked = asked
        self._seeds = Seeds(seed)

    def at_s(self, sample: LoadSample) -> float | None:
        """When the client of this record sends its request again, seconds after the run's start; None: it does not."""
        asked, told_s = self._asked, sample.retry_after_s
        refused = sample.outcome is LoadOutcome.REFUSED and sample.status in COME_BACK
        if not refused or told_s is None or sample.attempt >= asked.tries:
            return None
        # Who comes back is a trait of the client; how long it dawdles is new each time.
        if asked.share < 1 and self._seeds.rng(f"returning/{sample.index}").random() >= asked.share:
            return None
        dawdle = self._seeds.rng(f"returning/{sample.index}/{sample.attempt}").random()
        return sample.ended_s + told_s + asked.jitter_s * float(dawdle)


def retry_after_s(value: str, wall_s: float) -> float | None:
    """A Retry-After header's delay in seconds, 0 for a date that is over; None where it says neither seconds nor a date.

    wall_s: now, Unix seconds.
    """
    text = value.strip()
    if text.isascii() and text.isdigit():
        return float(text) if len(text) <= MAX_DIGITS else None
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - wall_s)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
