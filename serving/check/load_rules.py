"""Bounds on load that contradict each other, or the engines."""

from collections.abc import Iterator, Mapping
from math import ceil
from urllib.parse import urlsplit

from serving.check.facts import Facts
from serving.check.fix import Set
from serving.check.rule import Needs, Rule, Severity, Source, Trouble
from serving.engines.commands import connect_to
from serving.standing import FAILURES_IN_A_ROW
from toolkit.core.sample import SloClass, WorkloadClass

NO_RADIX = "--disable-radix-cache"
SLOTS, POOL = "--max-running-requests", "--max-total-tokens"
USUAL_IMAGES: Mapping[WorkloadClass, int] = {
    WorkloadClass.TEXT_ONLY: 0,
    WorkloadClass.IMAGE_SHORT: 1,
    WorkloadClass.MULTI_IMAGE_LONG: 2,
    WorkloadClass.HIGH_RES: 1,
}
"""The least number of images with which a request is of that class."""
RETRY_SHARE = 0.2
"""Finagle's default retry budget (docs/decisions/0023)."""


def _slots(facts: Facts) -> Iterator[Trouble]:
    slots = [engine.number(SLOTS) for engine in facts.engines if engine.role == "decode"]
    most, known = facts.config.schedule.max_in_flight, [one for one in slots if one]
    if known and len(known) == len(slots) and most > sum(known):
        told = f"{most}, and decode runs {sum(known):g} at once ({SLOTS})"
        yield Trouble("schedule.max_in_flight", told, Set("schedule.max_in_flight", sum(known)))


def _bounds(facts: Facts) -> Iterator[Trouble]:
    schedule = facts.config.schedule
    if schedule.min_in_flight > schedule.max_in_flight:
        told = f"{schedule.min_in_flight}, above schedule.max_in_flight = {schedule.max_in_flight}"
        yield Trouble("schedule.min_in_flight", told, Set("schedule.min_in_flight", min(2, schedule.max_in_flight)))  # fmt: skip


def _shed(facts: Facts) -> Iterator[Trouble]:
    for kind, classes in (("SLO", SloClass), ("workload", USUAL_IMAGES)):
        if all(getattr(facts.config.shed, one.value) for one in classes):
            keys = [f"shed.{one.value}" for one in classes]
            yield Trouble(keys[0], f"true, as for every {kind} class", Set(keys[0], False))


def _pool_tokens(facts: Facts) -> int:
    """The smallest KV pool of a decode; 0 where none is known beforehand: on a GPU SGLang measures it."""
    pools = [engine.number(POOL) or 0 for engine in facts.engines if engine.role == "decode"]
    return int(min(pools, default=0))


def _leased(facts: Facts) -> int:
    """Most tokens that one request may hold; 0 as above."""
    return int(facts.config.lease.cap * _pool_tokens(facts))


def _pool(facts: Facts) -> Iterator[Trouble]:
    pool, tokens, images = _pool_tokens(facts), facts.largest_tokens, facts.config.access.max_images
    answer = facts.config.default_max_tokens.multi_image_long
    if pool and tokens and images * tokens + answer > pool:
        told = f"{images} images of up to {tokens} tokens and an answer of {answer}, and a KV pool of {pool}"
        fits = max(1, (pool - answer) // tokens)
        yield Trouble("access.max_images", told, Set("access.max_images", fits))


def _usual(facts: Facts) -> Iterator[Trouble]:
    pool, leased, config = _pool_tokens(facts), _leased(facts), facts.config
    images = {workload: number * facts.largest_tokens for workload, number in USUAL_IMAGES.items()}
    needs = {workload: config.default_max_tokens.of(workload) + images[workload] for workload in images}
    workload = max(needs, key=lambda one: needs[one])
    if pool and needs[workload] > leased:
        told = f"{leased} tokens for one request; {workload.value} takes {needs[workload]} where it names no max_tokens"
        if needs[workload] <= pool:
            fix = Set("lease.cap", ceil(100 * needs[workload] / pool) / 100)
        else:
            fix = Set(f"default_max_tokens.{workload.value}", max(1, leased - images[workload]))
        yield Trouble("lease.cap", told, fix)


def _most(facts: Facts) -> Iterator[Trouble]:
    config = facts.config
    said = "max_images" in config.access.model_fields_set or "cap" in config.lease.model_fields_set
    if not said or any(_usual(facts)):  # what nobody asked for is no mistake; too low a cap is told there
        return
    leased, tokens, most = _leased(facts), facts.largest_tokens, facts.config.access.max_images
    answer = facts.config.default_max_tokens.multi_image_long
    if leased and tokens and answer + most * tokens > leased:
        fits = max(1, (leased - answer) // tokens)
        told = f"{most} images of up to {tokens} tokens and an answer of {answer}, and {leased} tokens for one request"
        yield Trouble("access.max_images", told, Set("access.max_images", fits))


def _affinity(facts: Facts) -> Iterator[Trouble]:
    prefills = facts.of("prefill")
    if facts.config.pairing.affinity and len(prefills) > 1:
        for engine in prefills:
            if engine.has(NO_RADIX):
                told = f"{NO_RADIX}, and pairing.affinity sends what it has seen to it again"
                yield Trouble(engine.name, told, Set("pairing.affinity", False))


def _itself(facts: Facts) -> Iterator[Trouble]:
    gateway, url = facts.config.gateway, urlsplit(facts.config.fallback.url)
    here = (gateway.host, connect_to(gateway.host), "localhost")
    if url.hostname in here and url.port == gateway.port:
        yield Trouble("fallback.url", f"{facts.config.fallback.url} is this gateway", Set("fallback.url", ""))


def _share(facts: Facts) -> Iterator[Trouble]:
    retry = facts.config.retry
    if retry.max_attempts > 1 and retry.budget_share > RETRY_SHARE:
        told = f"retries may add {retry.budget_share:.0%} to the load"
        yield Trouble("retry.budget_share", told, Set("retry.budget_share", 0.1))


def _breaker(facts: Facts) -> Iterator[Trouble]:
    attempts = facts.config.retry.max_attempts
    if facts.pairs == 1 and attempts > FAILURES_IN_A_ROW:
        told = f"{attempts} attempts on the only pair, which {FAILURES_IN_A_ROW} failures in a row make a suspect"
        yield Trouble("retry.max_attempts", told, Set("retry.max_attempts", FAILURES_IN_A_ROW))


def _burst(facts: Facts) -> Iterator[Trouble]:
    retry = facts.config.retry
    most = FAILURES_IN_A_ROW * max(1, facts.pairs)
    if retry.max_attempts > 1 and retry.budget_least > most:
        told = (
            f"{retry.budget_least} retries at once without any load, and {most} failures suspect every pair"
        )
        yield Trouble("retry.budget_least", told, Set("retry.budget_least", most))


RULES = (
    Rule(
        "more-than-slots",
        Severity.WARNING,
        "more requests inside the engines than decode runs",
        "What is over the slots waits in decode's queue, with its KV cache held on prefill, where no order, budget or share of"
        " the gateway reaches it.",
        (Source("srt/arg_groups/fields/schedule.py:33", "The maximum number of running requests"),),
        _slots,
        flags=(SLOTS,),
        needs=Needs.ENGINES,
    ),
    Rule(
        "in-flight-bounds",
        Severity.WARNING,
        "a lower bound of the in-flight limit above the upper one",
        "The lower one is then quietly the upper one, and the limit adapts to nothing.",
        (Source("serving/schedule/limit.py"),),
        _bounds,
    ),
    Rule(
        "sheds-everybody",
        Severity.WARNING,
        "every SLO class or every workload class shed",
        "Every request gets 429 `shed`, and /readyz still says ready.",
        (Source("serving/schedule_config.py"),),
        _shed,
    ),
    Rule(
        "images-over-pool",
        Severity.WARNING,
        "a request of the most and largest images that no KV pool holds",
        "It is prepared, waits for its turn, and the engine refuses it.",
        (Source("srt/arg_groups/fields/schedule.py:39", "max_total_tokens"),),
        _pool,
        flags=(POOL,),
        needs=Needs.MODEL,
    ),
    Rule(
        "lease-under-usual",
        Severity.WARNING,
        "a lease cap below what a usual request takes",
        "Such a request is refused (413 kv_lease_exceeded) though its client asked for nothing special: the answer's length is"
        " the gateway's default (default_max_tokens), the images are one or two of the largest.",
        (Source("serving/schedule/lease.py"),),
        _usual,
        flags=(POOL,),
        needs=Needs.MODEL,
    ),
    Rule(
        "images-over-lease",
        Severity.NOTE,
        "a lease cap below a request of the most and largest images",
        "The cap refuses it (413 kv_lease_exceeded), or lets its images shrink where the class has `degrade`, but only after"
        " its images were fetched. A lower access.max_images says so at once.",
        (Source("serving/schedule/lease.py"),),
        _most,
        flags=(POOL,),
        needs=Needs.MODEL,
    ),
    Rule(
        "affinity-without-cache",
        Severity.WARNING,
        "requests kept together on prefills that remember nothing",
        "Without a radix cache there is nothing to come back to; the load is only spread less evenly.",
        (Source("serving/affinity.py"),),
        _affinity,
        flags=(NO_RADIX,),
        needs=Needs.ENGINES,
    ),
    Rule(
        "fallback-to-itself",
        Severity.ERROR,
        "a fallback that is the gateway itself",
        "What no pair can answer comes back as a new request, and again, until its budget ends.",
        (Source("serving/fallback_config.py"),),
        _itself,
    ),
    Rule(
        "retries-add-load",
        Severity.WARNING,
        "a retry budget above 20 %",
        "When everything fails, each request costs 1 + the share: an overload that retries keep up.",
        (Source("docs/decisions/0023-retries-within-a-budget.md"),),
        _share,
    ),
    Rule(
        "retries-suspect-the-pair",
        Severity.WARNING,
        "more attempts of one request than failures that make a pair suspect",
        "One request that the engine cannot serve then costs the only pair its standing, and a probe for each.",
        (Source("serving/standing.py"), Source("docs/decisions/0023-retries-within-a-budget.md")),
        _breaker,
    ),
    Rule(
        "retries-suspect-all",
        Severity.WARNING,
        "retries granted to an idle service that suffice to suspect every pair",
        "A handful of requests that engines cannot serve, retried, puts every pair on probation.",
        (Source("serving/standing.py"), Source("docs/decisions/0023-retries-within-a-budget.md")),
        _burst,
    ),
)
