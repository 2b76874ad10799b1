"""A workload as data: what is asked, when. The noun through which load generators, replays and simulations meet.

A plan holds the realised schedule, every time and every draw already made, so that it repeats exactly anywhere.
Images travel as recipes (a few numbers that reproduce the bytes), not as bytes.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self, get_args

from toolkit.core.errors import UsageFault
from toolkit.core.sample import SloClass, WorkloadClass

PLAN_VERSION = 1

ImageSource = Literal["natural", "china", "flower"]


@dataclass(frozen=True, slots=True)
class ImageRecipe:
    """One image. natural: a synthetic scene; china, flower: a crop of that photograph. width, height: pixels."""

    source: ImageSource
    width: int
    height: int
    seed: int
    quality: int = 85


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """One request. at_s: seconds after the run's start at which it is due."""

    index: int
    at_s: float
    workload_class: WorkloadClass
    slo_class: SloClass
    text: str
    images: tuple[ImageRecipe, ...]
    max_tokens: int
    stream: bool = True


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole workload in order of arrival. duration_s: the offered window, in which every request is due."""

    name: str
    seed: int
    duration_s: float
    requests: tuple[PlannedRequest, ...]

    def to_json(self) -> bytes:
        """One JSON object, a line per request; the same plan gives the same bytes."""
        head = {"version": PLAN_VERSION, "name": self.name, "seed": self.seed, "duration_s": self.duration_s}
        lines = ",\n".join(json.dumps(asdict(request)) for request in self.requests)
        return (json.dumps(head)[:-1] + ', "requests": [\n' + lines + "\n]}\n").encode()

    @classmethod
    def from_json(cls, data: bytes | str) -> Self:
        """The inverse of `to_json`. Raises UsageFault when it is no plan of this version."""
        try:
            tables = json.loads(data)
            if tables["version"] != PLAN_VERSION:
                raise UsageFault(
                    f"plan version {tables['version']} is not {PLAN_VERSION}: make the plan again."
                )
            requests = tuple(_request(item) for item in tables["requests"])
            return cls(str(tables["name"]), int(tables["seed"]), float(tables["duration_s"]), requests)
        except (KeyError, TypeError, ValueError) as error:
            raise UsageFault(f"not a plan: {error!r}.") from error


def _request(item: dict[str, Any]) -> PlannedRequest:
    plain = dict(item)
    plain["workload_class"] = WorkloadClass(plain["workload_class"])
    plain["slo_class"] = SloClass(plain["slo_class"])
    plain["images"] = tuple(_recipe(image) for image in plain["images"])
    return PlannedRequest(**plain)


def _recipe(item: dict[str, Any]) -> ImageRecipe:
    recipe = ImageRecipe(**item)
    if recipe.source not in get_args(ImageSource):
        raise ValueError(f"unknown image source {recipe.source!r}")
    return recipe
