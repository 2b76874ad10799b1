"""What a plan asks, in numbers: counts, token lengths, images, and how its arrivals scatter."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import isnan
from typing import Any

from toolkit.core.classify import length_of, tokens_in
from toolkit.core.plan import Plan, PlannedRequest
from toolkit.core.sample import WorkloadClass
from toolkit.core.slo import percentile
from workloads.arrivals import dispersion, gap_cv
from workloads.compose import reply_to
from workloads.pictures import image_tokens
from workloads.texts import estimate_tokens

ALL = "all"
SLICES = 20


@dataclass(frozen=True, slots=True)
class Spread:
    """How a number scatters over requests."""

    mean: float
    variance: float
    p50: float
    p90: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True)
class Group:
    """One class, or all. Tokens are estimates: text 4 characters each, images one per 28 x 28 pixels, 1,280 at most.

    prompt_tokens: text, the text of earlier turns, and images. short_texts, long_texts: shares by the gateway's
    estimate and bounds. bins: requests by prompt_tokens, [2^k, 2^(k+1)).
    """

    name: str
    requests: int
    share: float
    slo_classes: tuple[str, ...]
    prompt_tokens: Spread
    text_tokens: Spread
    short_texts: float
    long_texts: float
    images: Spread
    megapixels: Spread
    max_tokens: Spread
    bins: dict[int, int]


@dataclass(frozen=True, slots=True)
class Description:
    """A plan in numbers.

    gap_cv: of the gaps between arrivals (1: Poisson). dispersion: variance over mean of the arrivals per second.
    rank_correlation: Spearman's, over requests with images. repeated_images: share of images whose bytes came before.
    slices: arrivals in each twentieth of the window. arrivals: what is offered, in words. images_url: of the server that
    images are fetched from.
    """

    name: str
    seed: int
    duration_s: float
    concurrency: int
    rate: float
    gap_cv: float
    dispersion: float
    groups: tuple[Group, ...]
    rank_correlation: dict[str, float]
    repeated_images: float
    conversations: int
    slices: tuple[int, ...]
    arrivals: str = ""
    images_url: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types, stable keys; what is not known is null."""
        plain: dict[str, Any] = _known(asdict(self))
        for table, group in zip(plain["groups"], self.groups, strict=True):
            table["per_second"] = self.per_second(group)
        return plain

    @property
    def everything(self) -> Group:
        return self.groups[0]

    def per_second(self, group: Group) -> dict[str, float]:
        """Expected rates of a group over the window: requests, images, prompt tokens, output tokens at most.

        Of a closed loop nothing is expected: its rate is the server's.
        """
        if self.concurrency:
            return {}
        count = group.requests / self.duration_s
        return {
            "requests": count,
            "images": count * group.images.mean,
            "prompt tokens": count * group.prompt_tokens.mean,
            "output tokens": count * group.max_tokens.mean,
        }


def describe(plan: Plan, arrivals: str = "") -> Description:
    """arrivals: what is offered, in words. Raises ValueError for a plan without requests."""
    if not plan.requests:
        raise ValueError("a plan without requests has no numbers")
    rows = list(_rows(plan))
    by_class: defaultdict[str, list[_Row]] = defaultdict(list)
    for row in rows:
        by_class[row.request.workload_class.value].append(row)
    groups = [_group(ALL, rows, len(rows))]
    groups.extend(
        _group(name.value, by_class[name.value], len(rows)) for name in WorkloadClass if by_class[name.value]
    )
    times = [request.at_s for request in plan.requests] if not plan.concurrency else []
    images = [image for request in plan.requests for image in request.images]
    slices = Counter(min(SLICES - 1, int(at / plan.duration_s * SLICES)) for at in times)
    return Description(
        name=plan.name,
        seed=plan.seed,
        duration_s=plan.duration_s,
        concurrency=plan.concurrency,
        rate=len(times) / plan.duration_s,
        gap_cv=gap_cv(times),
        dispersion=dispersion(times, plan.duration_s, 1.0),
        groups=tuple(groups),
        rank_correlation=_correlations([row for row in rows if row.request.images]),
        repeated_images=1 - len(set(images)) / len(images) if images else 0.0,
        conversations=len({r.conversation for r in plan.requests if r.conversation}),
        slices=tuple(slices[number] for number in range(SLICES)),
        arrivals=arrivals,
        images_url=plan.images_url,
    )


@dataclass(frozen=True, slots=True)
class _Row:
    request: PlannedRequest
    text_tokens: int
    prompt_tokens: int


def _rows(plan: Plan) -> "list[_Row]":
    said: defaultdict[str, int] = defaultdict(int)
    rows: list[_Row] = []
    for request in plan.requests:
        text = estimate_tokens(request.text)
        shown = sum(image_tokens(image.width, image.height) for image in request.images)
        before = said[request.conversation] if request.conversation else 0
        rows.append(_Row(request, text, before + text + shown))
        if request.conversation:
            said[request.conversation] += text + estimate_tokens(reply_to(request, plan.seed))
    return rows


def _group(name: str, rows: Sequence[_Row], total: int) -> Group:
    pixels = [image.width * image.height / 1e6 for row in rows for image in row.request.images]
    lengths = Counter(length_of(tokens_in(len(row.request.text.encode()))) for row in rows)
    return Group(
        name=name,
        requests=len(rows),
        share=len(rows) / total,
        slo_classes=tuple(sorted({row.request.slo_class.value for row in rows})),
        prompt_tokens=_spread([row.prompt_tokens for row in rows]),
        text_tokens=_spread([row.text_tokens for row in rows]),
        short_texts=lengths["short"] / len(rows),
        long_texts=lengths["long"] / len(rows),
        images=_spread([len(row.request.images) for row in rows]),
        megapixels=_spread(pixels or [0.0]),
        max_tokens=_spread([row.request.max_tokens for row in rows]),
        bins=dict(sorted(Counter(1 << row.prompt_tokens.bit_length() - 1 for row in rows).items())),
    )


def _spread(values: Sequence[float]) -> Spread:
    mean = sum(values) / len(values)
    return Spread(
        mean,
        sum((value - mean) ** 2 for value in values) / len(values),
        percentile(values, 0.5),
        percentile(values, 0.9),
        percentile(values, 0.99),
        max(values),
    )


def _correlations(rows: Sequence[_Row]) -> dict[str, float]:
    columns: dict[str, list[float]] = {
        "text_tokens": [row.text_tokens for row in rows],
        "images": [len(row.request.images) for row in rows],
        "max_tokens": [row.request.max_tokens for row in rows],
    }
    pairs = (("text_tokens", "images"), ("text_tokens", "max_tokens"), ("images", "max_tokens"))
    return {f"{one}/{other}": spearman(columns[one], columns[other]) for one, other in pairs}


def spearman(one: Sequence[float], other: Sequence[float]) -> float:
    """Rank correlation, ties by their mean rank; NaN where one does not vary."""
    import numpy as np

    if len(set(one)) < 2 or len(set(other)) < 2:
        return float("nan")
    return float(np.corrcoef(_ranks(one), _ranks(other))[0, 1])


def _ranks(values: Sequence[float]) -> list[float]:
    places: defaultdict[float, list[int]] = defaultdict(list)
    for place, value in enumerate(sorted(values)):
        places[value].append(place)
    return [(places[value][0] + places[value][-1]) / 2 for value in values]


def _known(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _known(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_known(item) for item in value]
    return None if isinstance(value, float) and isnan(value) else value
