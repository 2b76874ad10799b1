"""How many cores and gateways a load needs, from what one request costs here. Pure.

    busy cores = sum over classes of  requests/s x (images x CPU s/image x (1 - cache hits) + CPU s/request)
    cores      = busy cores / (1 - headroom), rounded up

The event loop of a gateway is one thread: what it does of each request bounds the requests of one process, however
many cores there are. Pictures are decoded beside it, on as many threads as it has.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class ImageCost:
    """CPU seconds of one image from its bytes to what the engine gets, over `n` different images of a class.

    alone: one at a time, mean. busy: on every core at once, mean; shared caches and hyperthreads make it dearer.
    gateway: of some of them in a gateway process, which hands large ones to processes of their own, mean.
    The rest describes the dearest of the three. low, high: 95 % bounds of its mean. cv2: variance / mean^2.
    """

    n: int
    alone_s: float
    busy_s: float
    gateway_s: float
    mean_s: float
    low_s: float
    high_s: float
    p50_s: float
    p95_s: float
    cv2: float

    def in_a_gateway(self, seconds: float) -> Self:
        """The same, where an image costs so much there: what is dearer counts, with the scatter that was seen."""
        times = max(1.0, seconds / self.mean_s)
        scaled = {
            name: getattr(self, name) * times for name in ("mean_s", "low_s", "high_s", "p50_s", "p95_s")
        }
        return replace(self, gateway_s=seconds, **scaled)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Raises KeyError, TypeError."""
        return cls(**{field.name: data[field.name] for field in fields(cls)})


@dataclass(frozen=True, slots=True)
class RequestCost:
    """CPU seconds of a whole gateway process for one request whose images it has already: head, body, JSON, the two
    legs, the tokens. `n` were sent.

    few_s, many_s: with few and with many at once; mean_s: the dearer. loop_s: on the event loop's thread with many at
    once, which is how a loop works that has much to do: it takes several tokens at one waking.
    """

    n: int
    few_s: float
    many_s: float
    mean_s: float
    loop_s: float

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Raises KeyError, TypeError."""
        return cls(**{field.name: data[field.name] for field in fields(cls)})


@dataclass(frozen=True, slots=True)
class ClassLoad:
    """One class of the load. share: of the requests. images: per request, mean."""

    name: str
    share: float
    images: float
    request: RequestCost
    image: ImageCost | None  # None: the class shows no images


@dataclass(frozen=True, slots=True)
class ClassNeed:
    """What a class keeps busy. Cores; saved: what cache hits take off."""

    load: ClassLoad
    requests_per_s: float
    cores: float
    loop_cores: float
    saved_cores: float


@dataclass(frozen=True, slots=True)
class CpuPlan:
    """The answer. Cores; low, high: 95 % bounds of busy, from the scatter of the images that were measured.

    waits_s: mean wait of a picture for a free core at that utilisation. bound_by: what sets the number of gateways.
    """

    qps: float
    headroom: float
    cache_hit: float
    classes: tuple[ClassNeed, ...]
    busy: float
    low: float
    high: float
    loop: float
    saved: float
    cores: int
    gateways: int
    cores_per_gateway: int
    bound_by: str
    waits_s: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def plan_cpu(
    loads: Sequence[ClassLoad],
    qps: float,
    headroom: float,
    cores_per_gateway: int,
    cache_hit: float = 0.0,
    idle_cores: float = 0.0,
) -> CpuPlan:
    """The plan for a peak of `qps` requests per second.

    headroom: share of the cores that stays free at that peak, in [0, 1). cores_per_gateway: what one process may use,
    its loop included. cache_hit: share of images that were prepared before. idle_cores: of one gateway without load.
    """
    needs = tuple(_need(load, qps, cache_hit) for load in loads)
    busy, loop = sum(need.cores for need in needs), sum(need.loop_cores for need in needs)
    error = math.sqrt(sum(_half_width(need, cache_hit) ** 2 for need in needs))
    target = 1 - headroom
    by_loop = math.ceil(loop / target - 1e-9) or 1
    gateways = by_loop
    while busy + gateways * idle_cores > gateways * cores_per_gateway * target:
        gateways += 1
    busy += gateways * idle_cores
    cores = max(1, math.ceil(busy / target - 1e-9))
    return CpuPlan(
        qps=qps,
        headroom=headroom,
        cache_hit=cache_hit,
        classes=needs,
        busy=busy,
        low=max(0.0, busy - error),
        high=busy + error,
        loop=loop,
        saved=sum(need.saved_cores for need in needs),
        cores=cores,
        gateways=gateways,
        cores_per_gateway=cores_per_gateway,
        bound_by="event loop" if gateways == by_loop and by_loop > 1 else "cores",
        waits_s=_picture_wait(needs, cores, busy),
    )


def mean_wait(servers: int, utilisation: float, service_s: float, cv2: float) -> float:
    """Mean wait for one of `servers`, seconds; infinite from utilisation 1 on.

    M/G/c by Allen and Cunneen's approximation (Erlang's C for the chance to wait at all, times the half sum of the
    squared variations, Poisson arrivals having 1): A. O. Allen, Probability, Statistics and Queueing Theory, 1990.
    """
    if utilisation >= 1:
        return math.inf
    offered = servers * utilisation
    blocked = 1.0  # Erlang's B by its recursion: no factorial overflows
    for server in range(1, servers + 1):
        blocked = offered * blocked / (server + offered * blocked)
    waits = blocked / (1 - utilisation * (1 - blocked))
    return waits * service_s / (servers * (1 - utilisation)) * (1 + cv2) / 2


def _need(load: ClassLoad, qps: float, cache_hit: float) -> ClassNeed:
    rate = qps * load.share
    pictures = rate * load.images * load.image.mean_s if load.image else 0.0
    return ClassNeed(
        load=load,
        requests_per_s=rate,
        cores=pictures * (1 - cache_hit) + rate * load.request.mean_s,
        loop_cores=rate * load.request.loop_s,
        saved_cores=pictures * cache_hit,
    )


def _half_width(need: ClassNeed, cache_hit: float) -> float:
    image = need.load.image
    if image is None:
        return 0.0
    return need.requests_per_s * need.load.images * (1 - cache_hit) * (image.high_s - image.low_s) / 2


def _picture_wait(needs: Sequence[ClassNeed], cores: int, busy: float) -> float:
    """Every picture's service time mixed: by class the mean and the second moment."""
    rates = [(need.requests_per_s * need.load.images, need.load.image) for need in needs]
    seen = [(rate, image) for rate, image in rates if image is not None and rate > 0]
    total = sum(rate for rate, _ in seen)
    if not total:
        return 0.0
    mean = sum(rate * image.mean_s for rate, image in seen) / total
    second = sum(rate * image.mean_s**2 * (1 + image.cv2) for rate, image in seen) / total
    return mean_wait(cores, busy / cores, mean, second / mean**2 - 1)
