"""What a client asks of the time: its SLO class, and the total TTFT budget."""

from collections.abc import Mapping
from dataclasses import dataclass

from toolkit.core.errors import InvalidRequest, OutOfTime
from toolkit.core.sample import SloClass

MAX_BUDGET_S = 3600.0
MAX_BUDGET_DIGITS = 10


_LONGER = "or send with a larger x-ttft-budget-ms or x-slo-class: batch."
SOONER = {
    "body": f"Send a smaller body or over a faster link, {_LONGER}",
    "fetch": f"Send smaller images, from a faster host or as data: URIs, {_LONGER}",
    "prepare": f"Send fewer or smaller images, {_LONGER}",
}
"""What helps a client whose budget ended in the hop, where coming again later does not."""


@dataclass(frozen=True, slots=True)
class Promise:
    """The SLO class of a request and its total TTFT budget, seconds from arrival."""

    slo_class: SloClass
    budget_s: float


def promise(
    slo_header: str | None, budget_header: str | None, default: SloClass, budgets_s: Mapping[SloClass, float]
) -> Promise:
    """The class from `x-slo-class` and the budget from `x-ttft-budget-ms`, else the defaults. Raises InvalidRequest."""
    try:
        slo_class = SloClass(slo_header.strip().lower()) if slo_header else default
    except ValueError as error:
        known = ", ".join(SloClass)
        raise InvalidRequest(
            f"x-slo-class: {slo_header!r} is not one of {known}.", param="x-slo-class"
        ) from error
    if budget_header is None:
        return Promise(slo_class, budgets_s[slo_class])
    text = budget_header.strip()
    if (
        not (text.isascii() and text.isdigit() and len(text) <= MAX_BUDGET_DIGITS)
        or not 0 < int(text) <= MAX_BUDGET_S * 1000
    ):
        raise InvalidRequest(
            f"x-ttft-budget-ms: {budget_header!r} is not a whole number of milliseconds from 1 to {MAX_BUDGET_S * 1000:.0f}.",
            param="x-ttft-budget-ms",
        )
    return Promise(slo_class, int(text) / 1000)


def out_of_time(hop: str, budget_s: float) -> OutOfTime:
    """The 504 that names the hop in which the budget ended."""
    return OutOfTime(
        f"The TTFT budget of {budget_s * 1000:.0f} ms ended in the hop {hop!r} before the first token.",
        hop=hop,
        action=SOONER.get(hop, ""),
    )
