"""Profile + seed -> plan. Every request draws from a stream of its own, so no draw depends on the ones before it."""

from typing import TYPE_CHECKING

from toolkit.core.plan import ImageRecipe, ImageSource, Plan, PlannedRequest
from toolkit.core.sample import WorkloadClass
from toolkit.core.seed import Seeds
from workloads.arrivals import PACERS
from workloads.mix import draw_classes
from workloads.profile import ClassMix, Profile, Span
from workloads.texts import IMAGE_ASKS, IMAGES_ASKS, TEXT_ASKS, compose_text

if TYPE_CHECKING:
    import numpy as np

PHOTOS: tuple[ImageSource, ...] = ("china", "flower")


def compose(profile: Profile) -> Plan:
    """The realised workload of a profile; the same profile gives the same plan."""
    seeds = Seeds(profile.seed)
    times = PACERS[profile.arrival](profile.rate, profile.duration_s, seeds.rng("arrivals"))
    mixes = profile.classes.present()
    classes = draw_classes({name: mix.weight for name, mix in mixes.items()}, len(times), seeds.rng("mix"))
    requests = tuple(
        _request(profile, seeds, index, at_s, name, mixes[name])
        for index, (at_s, name) in enumerate(zip(times, classes, strict=True))
    )
    return Plan(profile.name, profile.seed, profile.duration_s, requests)


def _request(
    profile: Profile, seeds: Seeds, index: int, at_s: float, name: WorkloadClass, mix: ClassMix
) -> PlannedRequest:
    stream = f"request/{index}"
    sizes = seeds.rng(f"{stream}/sizes")
    count = _draw(mix.images, sizes)
    asks = (TEXT_ASKS, IMAGE_ASKS, IMAGES_ASKS)[min(count, 2)]
    return PlannedRequest(
        index=index,
        at_s=at_s,
        workload_class=name,
        slo_class=mix.slo_class,
        text=compose_text(asks, _draw(mix.text_tokens, sizes), seeds.rng(f"{stream}/text")),
        images=tuple(_image(mix, seeds, f"{stream}/image/{number}") for number in range(count)),
        max_tokens=max(1, _draw(mix.max_tokens, sizes)),
        stream=profile.stream,
    )


def _image(mix: ClassMix, seeds: Seeds, stream: str) -> ImageRecipe:
    rng = seeds.rng(stream)
    width, height = mix.sizes[int(rng.integers(len(mix.sizes)))]
    photo = float(rng.random()) < mix.photo_share
    source: ImageSource = PHOTOS[int(rng.integers(len(PHOTOS)))] if photo else "natural"
    return ImageRecipe(source, width, height, seeds.number(f"{stream}/pixels"))


def _draw(span: Span, rng: "np.random.Generator") -> int:
    return int(rng.integers(span.min, span.max, endpoint=True))
