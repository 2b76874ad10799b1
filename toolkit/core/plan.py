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

ImageSource = Literal["natural", "china", "flower", "page", "file"]
Delivery = Literal["ok", "slow", "broken", "huge"]


@dataclass(frozen=True, slots=True)
class ImageRecipe:
    """One image. width, height: pixels.

    source: natural, a synthetic scene; china, flower, a crop of that photograph; page, a text-like page; file, the
    bytes of `file` as they are, which must still have that `sha256`. The same recipe is the same bytes.
    delivery: how an image server hands it out, where images travel by URL.
    """

    source: ImageSource
    width: int
    height: int
    seed: int
    quality: int = 85
    file: str = ""
    sha256: str = ""
    delivery: Delivery = "ok"


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """One request. at_s: seconds after the run's start at which it is due; 0 for all in a closed loop.

    conversation, turn: requests of one conversation, counted from 0; the texts of the turns before go before this
    one's. "" for a request that stands alone.
    """

    index: int
    at_s: float
    workload_class: WorkloadClass
    slo_class: SloClass
    text: str
    images: tuple[ImageRecipe, ...]
    max_tokens: int
    stream: bool = True
    conversation: str = ""
    turn: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole workload in order of arrival. duration_s: the offered window, in which every request is due.

    concurrency: 0, an open loop: each request goes out at its time. N, a closed loop: N are open at any time, the next
    goes out when one ends, until the window is over or the requests are.
    images_url: "", images travel inside the body. Else the server that hands them out: image `n` of request `i` is
    IMAGES_URL/i/n.
    """

    name: str
    seed: int
    duration_s: float
    requests: tuple[PlannedRequest, ...]
    concurrency: int = 0
    images_url: str = ""

    def to_json(self) -> bytes:
        """One JSON object, a line per request; the same plan gives the same bytes."""
        head = {
            "version": PLAN_VERSION,
            "name": self.name,
            "seed": self.seed,
            "duration_s": self.duration_s,
            "concurrency": self.concurrency,
            "images_url": self.images_url,
        }
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
            return cls(
                str(tables["name"]),
                int(tables["seed"]),
                float(tables["duration_s"]),
                requests,
                int(tables.get("concurrency", 0)),
                str(tables.get("images_url", "")),
            )
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
    if recipe.delivery not in get_args(Delivery):
        raise ValueError(f"unknown image delivery {recipe.delivery!r}")
    return recipe
