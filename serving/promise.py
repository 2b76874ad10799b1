"""What a client asks of the time: its SLO class, the total TTFT budget, and what it may be given less of to keep it."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from toolkit.core.errors import InvalidRequest, OutOfTime
from toolkit.core.sample import Degradation, SloClass

MAX_BUDGET_S = 3600.0
MAX_BUDGET_DIGITS = 10

ALL = frozenset(Degradation)
NEVER = "never"


_LONGER = "or send with a larger x-ttft-budget-ms or x-slo-class: batch."
SOONER = {
    "body": f"Send a smaller body or over a faster link, {_LONGER}",
    "fetch": f"Send smaller images, from a faster host or as data: URIs, {_LONGER}",
    "prepare": f"Send fewer or smaller images, {_LONGER}",
}
"""What helps a client whose budget ended in the hop, where coming again later does not."""


@dataclass(frozen=True, slots=True)
class Promise:
    """The SLO class of a request, its total TTFT budget, seconds from arrival, and the degradations that its client bears."""

    slo_class: SloClass
    budget_s: float
    degrade: frozenset[Degradation] = ALL


def promise(
    slo_header: str | None,
    budget_header: str | None,
    default: SloClass,
    budgets_s: Mapping[SloClass, float],
    degrade_header: str | None = None,
) -> Promise:
    """The class from `x-slo-class`, the budget from `x-ttft-budget-ms`, the degradations from `x-toolkit-degrade`, else the
    defaults. Raises InvalidRequest."""
    try:
        slo_class = default if slo_header is None else SloClass(slo_header.strip().lower())
    except ValueError as error:
        known = ", ".join(SloClass)
        raise InvalidRequest(
            f"x-slo-class: {slo_header!r} is not one of {known}.", param="x-slo-class"
        ) from error
    degrade = _degradations(degrade_header)
    if budget_header is None:
        return Promise(slo_class, budgets_s[slo_class], degrade)
    text = budget_header.strip()
    if (
        not (text.isascii() and text.isdigit() and len(text) <= MAX_BUDGET_DIGITS)
        or not 0 < int(text) <= MAX_BUDGET_S * 1000
    ):
        raise InvalidRequest(
            f"x-ttft-budget-ms: {budget_header!r} is not a whole number of milliseconds from 1 to {MAX_BUDGET_S * 1000:.0f}.",
            param="x-ttft-budget-ms",
        )
    return Promise(slo_class, int(text) / 1000, degrade)


def out_of_time(hop: str, budget_s: float, lacking_s: float = 0.0) -> OutOfTime:
    """The 504 that names the hop in which the budget ended. lacking_s: what the hops after it would take at least."""
    if lacking_s >= budget_s:  # no hop has spent it
        least_ms = ceil(lacking_s * 1000)
        return OutOfTime(
            f"The TTFT budget of {budget_s * 1000:.0f} ms is too small: the hops before a first token take {least_ms} ms at least.",
            hop=hop,
            action=f"Send with an x-ttft-budget-ms of well over {least_ms}, or without it; x-slo-class: batch has the most time.",
        )
    after = f", the hops after it take {lacking_s * 1000:.0f} ms at least" if lacking_s >= 0.001 else ""
    return OutOfTime(
        f"The TTFT budget of {budget_s * 1000:.0f} ms ended in the hop {hop!r} before the first token{after}.",
        hop=hop,
        action=SOONER.get(hop, ""),
    )


def _degradations(header: str | None) -> frozenset[Degradation]:
    if header is None:
        return ALL
    words = [word.strip().lower() for word in header.split(",")]
    if words == [NEVER]:
        return frozenset()
    try:
        return frozenset(Degradation(word) for word in words)
    except ValueError as error:
        raise InvalidRequest(
            f"x-toolkit-degrade: {header!r:.60} is neither {NEVER!r} nor a list of {', '.join(Degradation)}.",
            param="x-toolkit-degrade",
        ) from error
