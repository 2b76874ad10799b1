"""The shape of a load as data: phases, and the parameters of each way to arrive."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field, model_validator

from toolkit.core.config import Section
from workloads.distributions import Numbers
from workloads.traces.catalog import REQUEST_TRACES, TraceFormat


@dataclass(frozen=True, slots=True)
class Stretch:
    """One piece of the window at one mean rate. begin_s, end_s: seconds from the start."""

    name: str
    begin_s: float
    end_s: float
    rate: float


class Phase(Section):
    """One stretch of a load."""

    name: str = Field("", description="Shown in the report.")
    duration_s: float = Field(gt=0, description="Length, seconds.")
    rate: float | None = Field(None, gt=0, description="Requests per second.")
    share_of_peak: float | None = Field(
        None, gt=0, description="The same as a share of the profile's rate, which is the peak then."
    )

    @model_validator(mode="after")
    def _one_rate(self) -> "Phase":
        if (self.rate is None) == (self.share_of_peak is None):
            raise ValueError("a phase has either a rate or a share_of_peak")
        return self

    def at(self, peak: float) -> float:
        """Its rate, where the profile's is `peak`."""
        return self.rate if self.rate is not None else peak * (self.share_of_peak or 0.0)


def phases_s(phases: Sequence[Phase] | Sequence[Mapping[str, Any]]) -> float:
    """Length of all phases, seconds, also before they are validated."""
    return sum(float(p["duration_s"]) if isinstance(p, Mapping) else p.duration_s for p in phases)


def scaled(phases: Iterable[Phase], time_scale: float) -> tuple[Phase, ...]:
    """The same phases, `time_scale` times as long (0.1: a surge of 35 minutes in three and a half)."""
    return tuple(phase.model_copy(update={"duration_s": phase.duration_s * time_scale}) for phase in phases)


def stretches(phases: Sequence[Phase], rate: float, duration_s: float) -> tuple[Stretch, ...]:
    """The phases with their times and rates, cut off at `duration_s`; without phases one stretch of `rate`."""
    if not phases:
        return (Stretch("", 0.0, duration_s, rate),)
    found: list[Stretch] = []
    begin_s = 0.0
    for phase in phases:
        end_s = min(begin_s + phase.duration_s, duration_s)
        if end_s > begin_s:
            found.append(Stretch(phase.name, begin_s, end_s, phase.at(rate)))
        begin_s += phase.duration_s
    return tuple(found)


class Pattern(Section):
    """Parameters of the ways to arrive that have some."""

    cv: float = Field(
        2.0,
        ge=0.01,
        le=20,
        description="gamma: coefficient of variation of the gaps; 1 is Poisson, above burstier.",
    )
    on_s: float = Field(5.0, ge=0.001, description="on_off: seconds of Poisson arrivals in each cycle.")
    off_s: float = Field(5.0, ge=0, description="on_off: seconds of silence in each cycle.")
    states: tuple[tuple[float, float], ...] = Field(
        ((0.5, 20.0), (3.0, 5.0)),
        description="mmpp: [factor, mean stay in seconds] of each state, visited in turn; the rate there is rate * factor.",
    )

    @model_validator(mode="after")
    def _mean_is_the_rate(self) -> "Pattern":
        if len(self.states) < 2 or any(factor < 0 or stay < 0.001 for factor, stay in self.states):
            raise ValueError("states are two or more of [factor, mean stay in seconds]")
        mean = sum(f * stay for f, stay in self.states) / sum(stay for _, stay in self.states)
        if abs(mean - 1) > 1e-6:
            raise ValueError(
                f"the factors have a mean of {mean:g} over time: the rate would not be the one asked; "
                f"divide each by {mean:g}"
            )
        return self


class Trace(Section):
    """A recorded trace to repeat; `trace = "NAME"` is short for its `file`."""

    file: str = Field(description=f"A file, or the name of a built-in sample: {', '.join(REQUEST_TRACES)}.")
    format: TraceFormat | None = Field(None, description="Told by the file's ending where left out.")
    speed: float = Field(1.0, gt=0, description="2: twice as fast. The number of requests stays.")
    lengths: bool = Field(
        True,
        description="Also take prompt and answer lengths, images per request and shared prefixes from the trace; the "
        "class is then the rule's, and the weights are not used.",
    )

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, table: Any) -> Any:
        return {"file": table} if isinstance(table, str) else table


class Closed(Section):
    """A closed loop."""

    concurrency: int = Field(ge=1, description="Requests open at any time.")
    requests: int = Field(ge=1, description="Requests prepared; the run ends with them, or with the window.")


class Sessions(Section):
    """Conversations of several turns. Arrival times stay as they are: some arrivals carry an earlier one on."""

    share: float = Field(
        1.0, gt=0, le=1, description="Share of the requests that may belong to a conversation."
    )
    turns: Numbers = Field(Numbers(min=2, max=6), description="Turns of a conversation.")
    gap_s: float = Field(10.0, ge=0, description="Shortest time from one turn to the next.")


class ImageServer(Section):
    """The server of images by URL, and what goes wrong with it."""

    port: int = Field(8790, ge=1, le=65535, description="Port on loopback; fixed, since it is in every URL.")
    slow_share: float = Field(0.0, ge=0, le=1, description="Share of images that arrive slowly.")
    slow_s: float = Field(3.0, gt=0, description="Time over which a slow image is sent, seconds.")
    broken_share: float = Field(0.0, ge=0, le=1, description="Share of images that end half way.")
    huge_share: float = Field(0.0, ge=0, le=1, description="Share of images that never seem to end.")
    huge_bytes: int = Field(200_000_000, gt=0, description="Size of a huge one.")

    @model_validator(mode="after")
    def _shares(self) -> "ImageServer":
        if self.slow_share + self.broken_share + self.huge_share > 1:
            raise ValueError("slow_share, broken_share and huge_share pass 1 together")
        return self
