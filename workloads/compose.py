"""Profile + seed -> plan. Every request draws from a stream of its own, so no draw depends on the ones before it."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.core.classify import classify, tokens_in
from toolkit.core.errors import UsageFault
from toolkit.core.plan import ImageRecipe, Plan, PlannedRequest
from toolkit.core.sample import WorkloadClass
from toolkit.core.seed import Seeds
from workloads.arrivals import PACERS, gamma, mmpp, on_off, replay
from workloads.asked import Outline, from_clients, from_mix, from_record
from workloads.mix import draw_classes
from workloads.pictures import deliver
from workloads.population import Population
from workloads.profile import ClassMix, Profile
from workloads.sessions import ALONE, Turn, assign_turns
from workloads.texts import (
    IMAGE_ASKS,
    IMAGES_ASKS,
    REPLIES,
    TEXT_ASKS,
    compose_blocks,
    compose_text,
)
from workloads.traces.catalog import read_trace, trace_path
from workloads.traces.record import TraceRecord
from workloads.traces.servegen import read_servegen

if TYPE_CHECKING:
    from workloads.arrivals import Pacer


MAX_REQUESTS = 2_000_000
"""Most of a plan: it is held whole, at about 1 kB each, and no generator here sends as many in hours."""

ANY_MIX = ClassMix(sizes=((1024, 768),))
"""Stands in for a class that a trace has and its profile does not, until all of these are known."""


def compose_load(profile: Profile) -> Plan:
    """`compose`, for what is to be sent. Raises UsageFault when that is nothing, too."""
    plan = compose(profile)
    if not plan.requests:
        raise UsageFault("the plan has no request: ask for a higher rate or a longer duration.")
    return plan


def compose(profile: Profile) -> Plan:
    """The realised workload of a profile; the same profile gives the same plan.

    Raises UsageFault when the profile's parts do not fit each other, or a file it names cannot be read.
    """
    if profile.plan:
        return recorded_plan(Path(profile.plan))
    seeds = Seeds(profile.seed)
    if profile.trace is not None and profile.trace.lengths:
        outlines, times = _traced(profile, seeds)
    else:
        times = _times(profile, seeds)
        outlines = _drawn(profile, seeds, len(times))
    turns: tuple[Turn, ...] = (ALONE,) * len(times)
    if profile.sessions is not None:
        classes = [outline.workload_class for outline in outlines]
        turns = assign_turns(times, classes, profile.sessions, seeds.rng("sessions"))
    return Plan(
        profile.name,
        profile.seed,
        profile.duration_s,
        tuple(_requests(profile, seeds, times, outlines, turns)),
        profile.closed.concurrency if profile.closed is not None else 0,
        f"http://127.0.0.1:{profile.image_server.port}" if profile.origin == "url" else "",
    )


def recorded_plan(path: Path) -> Plan:
    """The plan of that file. Raises UsageFault when there is none."""
    try:
        return Plan.from_json(path.read_bytes())
    except OSError as error:
        raise UsageFault(f"{path}: cannot be read ({error.strerror}).") from error


def reply_to(request: PlannedRequest, seed: int) -> str:
    """What the assistant is taken to have said, for the turns after: bodies are made before anything is answered.

    As long as the request allowed, the same for the same plan.
    """
    rng = Seeds(seed).rng(f"reply/{request.conversation}/{request.turn}")
    return compose_text(REPLIES, request.max_tokens, rng)


def _times(profile: Profile, seeds: Seeds) -> tuple[float, ...]:
    if profile.closed is not None:
        _check_size(profile.closed.requests)
        return (0.0,) * profile.closed.requests
    if profile.trace is not None:
        records = read_trace(profile.trace.file, profile.trace.format)
        return replay((record.at_s for record in records), profile.trace.speed, profile.duration_s)
    _check_size(sum(piece.rate * (piece.end_s - piece.begin_s) for piece in profile.stretches()))
    pace = _pacer(profile)
    times: list[float] = []
    for number, piece in enumerate(profile.stretches()):
        rng = seeds.rng(f"arrivals/{number}" if number else "arrivals")
        times.extend(piece.begin_s + at for at in pace(piece.rate, piece.end_s - piece.begin_s, rng))
    return tuple(times)


def _check_size(expected: float) -> None:
    if expected > MAX_REQUESTS:
        raise UsageFault(
            f"the plan would have {expected:.3g} requests, over {MAX_REQUESTS:.3g}: ask for a lower rate or a shorter duration."
        )


def _pacer(profile: Profile) -> "Pacer":
    pattern = profile.pattern
    with_parameters: Mapping[str, Pacer] = {
        "gamma": partial(gamma, cv=pattern.cv),
        "on_off": partial(on_off, on_s=pattern.on_s, off_s=pattern.off_s),
        "mmpp": partial(mmpp, states=pattern.states),
    }
    return with_parameters.get(profile.arrival) or PACERS[profile.arrival]


def _drawn(profile: Profile, seeds: Seeds, count: int) -> list[Outline]:
    mixes = profile.classes.present()
    classes = draw_classes({name: mix.weight for name, mix in mixes.items()}, count, seeds.rng("mix"))
    population = _population(profile)
    outlines: list[Outline] = []
    for index, name in enumerate(classes):
        mix, stream = mixes[name], f"request/{index}"
        if mix.lengths == "clients":
            assert population is not None, "the profile checks that clients are named"
            outlines.append(from_clients(name, mix, population, seeds, stream))
        else:
            outlines.append(from_mix(name, mix, seeds, stream))
    return outlines


def _population(profile: Profile) -> Population | None:
    if profile.clients is None:
        return None
    wanted = profile.clients
    try:
        return Population(read_servegen(trace_path(wanted.folder)), wanted.window_s, wanted.max_images)
    except ValueError as error:
        raise UsageFault(f"clients: {error}.") from error


def _traced(profile: Profile, seeds: Seeds) -> tuple[list[Outline], tuple[float, ...]]:
    assert profile.trace is not None
    mixes = profile.classes.present()

    kept: list[TraceRecord] = []

    def times_of(records: Iterator[TraceRecord]) -> Iterator[float]:
        for record in records:
            kept.append(record)
            yield record.at_s

    records = read_trace(profile.trace.file, profile.trace.format)
    times = replay(times_of(records), profile.trace.speed, profile.duration_s)
    missing: set[WorkloadClass] = set()  # all are told at once

    def mix_of(name: WorkloadClass) -> ClassMix:
        if name not in mixes:
            missing.add(name)
        return mixes.get(name, ANY_MIX)

    inside = islice(kept, len(times))  # the last one read may be due after the end
    outlines = [from_record(record, mix_of, seeds, f"request/{i}") for i, record in enumerate(inside)]
    missing.update(outline.workload_class for outline in outlines if outline.workload_class not in mixes)
    if missing:
        names = [name.value for name in WorkloadClass if name in missing]
        raise UsageFault(
            f"the trace has requests of {', '.join(names)}: add {', '.join(f'[classes.{name}]' for name in names)} "
            "(with sizes where there are images, as sizes = [[1024, 768]]; a weight is not needed)."
        )
    return outlines, times


def _requests(
    profile: Profile,
    seeds: Seeds,
    times: tuple[float, ...],
    outlines: list[Outline],
    turns: tuple[Turn, ...],
) -> Iterator[PlannedRequest]:
    mixes = profile.classes.present()
    said: defaultdict[str, int] = defaultdict(int)  # bytes of text before the next turn of a conversation
    for index, (at_s, outline, (conversation, turn)) in enumerate(zip(times, outlines, turns, strict=True)):
        asks = (TEXT_ASKS, IMAGE_ASKS, IMAGES_ASKS)[min(len(outline.images), 2)]
        text = (
            compose_blocks(outline.blocks, outline.text_tokens, seeds)
            if outline.blocks
            else compose_text(asks, outline.text_tokens, seeds.rng(f"request/{index}/text"))
        )
        size = len(text.encode())
        request = PlannedRequest(
            index=index,
            at_s=at_s,
            workload_class=_ruled(outline, said[conversation] + size if conversation else size, turn, index),
            slo_class=mixes[outline.workload_class].slo_class,
            text=text,
            images=tuple(_delivered(profile, seeds, outline, index)),
            max_tokens=outline.max_tokens,
            stream=profile.stream,
            conversation=conversation,
            turn=turn,
        )
        if conversation:
            said[conversation] += size + len(reply_to(request, profile.seed).encode())
        yield request


def _ruled(outline: Outline, text_bytes: int, turn: int, index: int) -> WorkloadClass:
    """The class by the rule. It must be the one that was drawn, but for a later turn, whose text has grown."""
    sizes = [(image.width, image.height) for image in outline.images]
    ruled = classify(sizes, tokens_in(text_bytes))
    if ruled is not outline.workload_class and not turn:
        raise UsageFault(
            f"classes.{outline.workload_class.value}: request {index} with {len(sizes)} images and "
            f"{tokens_in(text_bytes)} tokens of text is {ruled.value} by the rule; narrow what this class draws."
        )
    return ruled


def _delivered(profile: Profile, seeds: Seeds, outline: Outline, index: int) -> Iterator[ImageRecipe]:
    for number, recipe in enumerate(outline.images):
        if profile.origin == "inline":
            yield recipe
        else:
            rng = seeds.rng(f"request/{index}/image/{number}/delivery")
            yield deliver(recipe, profile.image_server, rng)
