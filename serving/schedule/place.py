"""Where a request stands with the scheduler, and what an event moves."""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from toolkit.core.errors import Busy, TooLarge
from toolkit.core.sample import SloClass


class Place(Enum):
    """Where a request stands."""

    SEATED = "seated"
    QUEUED = "queued"
    RUNNING = "running"


class AdmissionError(RuntimeError):
    """An event that is illegal in the request's state: a fault of the caller's code."""


class Moves(NamedTuple):
    """What an event sets in motion: who enters the engines, in order, and who is refused, with why. Those refused still
    hold their places until they leave."""

    entered: list[str]
    refused: list[tuple[str, Busy | TooLarge]]


@dataclass(slots=True)
class Running:
    """One request inside the engines."""

    slo_class: SloClass
    short: bool
    entered: float
    lacked_s: float  # of its wait, while there was a slot and no room for its KV
    level: int  # its priority for the engines (levels.py)
    prompt: int  # tokens
    judged: bool = False
