"""A profile as `toolkit plan` sees it: what each class asks, and samples of it to measure."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from serving.plan_front import Asked
    from toolkit.core.plan import Plan, PlannedRequest
    from workloads.profile import Profile

DRAWN = 1500
"""Requests that are drawn where a profile draws: enough for a rare class's images, whatever its rate and duration."""
SENT = 24  # requests of a class that are sent
DRAWS = {"classes", "clients", "sessions", "extra_body", "stream", "trace", "plan", "closed"}
"""What decides the requests; a profile's rate, arrivals and seed do not."""


@dataclass(frozen=True, slots=True)
class ClassAsked:
    """One class. share: of the requests. images: per request, mean. again: share of its images that came before."""

    name: str
    share: float
    images: float
    again: float
    requests: "tuple[PlannedRequest, ...]"


@dataclass(frozen=True, slots=True)
class Load:
    """A profile's classes, in the classes' own order."""

    profile: "Profile"
    plan: "Plan"
    classes: tuple[ClassAsked, ...]

    @property
    def digest(self) -> str:
        """Changes with whatever the profile draws its requests from."""
        return hashlib.sha256(self.profile.model_dump_json(include=DRAWS).encode()).hexdigest()

    def images(self, asked: ClassAsked) -> Iterator[bytes]:
        """Different images of a class as files, each made when it is taken."""
        from workloads.images import encode

        for recipe in dict.fromkeys(image for request in asked.requests for image in request.images):
            yield encode(recipe)

    def bodies(self, model: str) -> "dict[str, list[Asked]]":
        """By class, requests whose answers are as long as the class's: every n-th by max_tokens."""
        from serving.plan_front import Asked
        from workloads.prepare import prepare

        chosen = {one.index: asked.name for asked in self.classes for one in _spread(asked.requests)}
        found: dict[str, list[Asked]] = {asked.name: [] for asked in self.classes}
        # By URL they would have to be fetched; what is measured is the rest.
        plan = replace(self.plan, images_url="")
        made = prepare(
            plan, model, self.profile.extra_body, self.profile.max_body_bytes, only=chosen.__contains__
        )
        for one in made:
            found[chosen[one.planned.index]].append(Asked(bytes(one.body), len(one.planned.images)))
        return found


def load_of(profile: "Profile") -> Load:
    """Raises UsageFault for a profile without requests."""
    from toolkit.core.sample import WorkloadClass
    from toolkit.core.seed import Seeds
    from workloads.compose import compose_load

    drawn = profile
    if profile.has_rate and profile.sessions is None:
        once = {"arrival": "constant", "rate": DRAWN / 100, "duration_s": 100.0, "phases": ()}
        drawn = profile.model_copy(update=once)
    plan = compose_load(drawn)
    weights = (
        {name: mix.weight for name, mix in profile.classes.present().items()} if drawn is not profile else {}
    )
    asked = []
    for name in WorkloadClass:
        requests = [request for request in plan.requests if request.workload_class is name]
        if not requests:
            continue
        share = (
            weights[name] / sum(weights.values()) if name in weights else len(requests) / len(plan.requests)
        )
        order = Seeds(profile.seed).rng(f"plan/{name.value}").permutation(len(requests))
        images = [image for request in requests for image in request.images]
        asked.append(
            ClassAsked(
                name.value,
                share,
                len(images) / len(requests),
                1 - len(set(images)) / len(images) if images else 0.0,
                tuple(requests[int(at)] for at in order),
            )
        )
    return Load(profile, plan, tuple(asked))


def _spread(requests: "tuple[PlannedRequest, ...]") -> "list[PlannedRequest]":
    ordered = sorted(requests, key=lambda request: request.max_tokens)
    count = min(SENT, len(ordered))
    return [ordered[int((number + 0.5) * len(ordered) / count)] for number in range(count)]
