"""What the pages of /metrics add to a verdict: the largest queue, and how many attempts the engines saw for a request. Pure.

SGLang refreshes its queue gauges between batches only, so a queue may have been longer than any page says. A request
waits in a prefill and a decode engine at once: of the two roles the fuller counts, or each would be counted twice.
"""

import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from toolkit.core.names import SEATED, WAITING
from workloads.scrape import ENGINE_REQUESTS, ENGINE_STAGES, QUEUES, ROUTER_QUEUES, ROUTER_RETRIES, named

FIRST_STAGES = ('stage="prefill_bootstrap"', 'stage="decode_prepare"')
"""What a scheduler of a pair does first to a request: counted for each, also for those that fail later."""

CHAT = 'endpoint="/v1/chat/completions"'
LATE_S = 5.0  # how far from a stretch's border its nearest page may be

GATEWAY_QUEUES = (SEATED.name, WAITING.name)
_ENGINE_TYPE = re.compile(r'engine_type="(\w+)"')

Record = Mapping[str, Any]
Values = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Peak:
    """The most of something at one time. at_s: after the run's start. where: its parts by source, none of them 0."""

    count: int
    at_s: float
    where: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Amplification:
    """Attempts at the engines per request offered: in the baseline, and from the surge on. counted: by what.

    To the run's end, since an engine counts what waits in it only when it comes to it, after the surge perhaps.
    """

    baseline: float
    surge: float
    counted: str


@dataclass(frozen=True, slots=True)
class Pages:
    """None: not measurable, and `why` says why, under the field's name."""

    queue: Peak | None
    amplification: Amplification | None
    why: Mapping[str, str]


NO_PAGES = Pages(None, None, dict.fromkeys(("queue", "amplification"), "no page of /metrics was kept"))


def read_pages(
    records: Iterable[Record], offered_at_s: Sequence[float], begin_s: float, end_s: float
) -> Pages:
    """From metrics.jsonl. offered_at_s: first attempts' intended arrivals; begin_s, end_s: the surge's."""
    pages = sorted((record for record in records if "values" in record), key=lambda record: record["at_s"])
    if not pages:
        return NO_PAGES
    why: dict[str, str] = {}
    queue = _peak(pages)
    if queue is None:
        why["queue"] = "no page holds a queue gauge of a gateway, a router or an engine"
    amplification = _amplification(pages, offered_at_s, begin_s, end_s)
    if isinstance(amplification, str):
        why["amplification"] = amplification
        return Pages(queue, None, why)
    return Pages(queue, amplification, why)


# --- the fullest moment


def _waiting(values: Values) -> dict[str, float]:
    """What waits on one page, by the role it waits in; "" is in front of the engines."""
    found: dict[str, float] = {}
    for names, role in ((GATEWAY_QUEUES + ROUTER_QUEUES, ""), (QUEUES, _role(values))):
        known = named(values, names)
        if known:
            found[role] = found.get(role, 0.0) + sum(known)
    return found


def _peak(pages: Sequence[Record]) -> Peak | None:
    """The largest total, each source standing at its last page; None where no page has any."""
    now: dict[tuple[str, str], float] = {}  # by role and source
    best: Peak | None = None
    for page in pages:
        for role, count in _waiting(page["values"]).items():
            now[role, page["source"]] = count
        if not now:
            continue
        roles = sorted({role for role, _ in now})
        fullest = max(
            (role for role in roles if role), key=lambda role: _sum(now, role), default=""
        )  # an engine's
        total = _sum(now, "") + (_sum(now, fullest) if fullest else 0.0)
        if best is None or total > best.count:
            parts = [(source, round(n)) for (role, source), n in now.items() if role in ("", fullest) and n]
            best = Peak(round(total), page["at_s"], tuple(sorted(parts)))
    return best


def _sum(now: Mapping[tuple[str, str], float], role: str) -> float:
    return sum(count for (of, _), count in now.items() if of == role)


def _role(values: Values) -> str:
    """prefill, decode, or unified for an engine that does not say which."""
    return next((found[1] for series in values if (found := _ENGINE_TYPE.search(series))), "unified")


# --- attempts


def _amplification(
    pages: Sequence[Record], offered_at_s: Sequence[float], begin_s: float, end_s: float
) -> Amplification | str:
    """The figure, or why there is none."""
    before = sum(at < begin_s for at in offered_at_s)
    since = sum(at >= begin_s for at in offered_at_s)
    roles: dict[str, list[Sequence[Record]]] = {}
    retries: list[Sequence[Record]] = []
    for _, own in itertools.groupby(
        sorted(pages, key=lambda page: str(page["source"])), lambda p: p["source"]
    ):
        history = list(own)
        role = next((role for page in history if (role := _role(page["values"])) != "unified"), "unified")
        if any(_attempts(page["values"]) for page in history):
            roles.setdefault(role, []).append(history)
        if any(named(page["values"], (ROUTER_RETRIES,)) for page in history):
            retries.append(history)
    for histories in roles.values():
        if (gap := _gap(histories, begin_s, end_s)) is not None:
            return gap
    if roles:
        seen = [
            max(sum(_grown(own, _attempts, *span) for own in histories) for histories in roles.values())
            for span in ((0.0, begin_s), (begin_s, math.inf))
        ]
        return Amplification(seen[0] / before, seen[1] / since, "requests that reached the engines")
    if retries:
        if (gap := _gap(retries, begin_s, end_s)) is not None:
            return gap
        more = [
            sum(_grown(own, lambda v: named(v, (ROUTER_RETRIES,)), *span) for own in retries)
            for span in ((0.0, begin_s), (begin_s, math.inf))
        ]
        return Amplification(
            1 + more[0] / before, 1 + more[1] / since, f"requests and {ROUTER_RETRIES} of the router"
        )
    return f"no page holds {ENGINE_STAGES}, {ENGINE_REQUESTS} or {ROUTER_RETRIES}: scrape the engines (--scrape URL of each) or the router"


def _gap(histories: Sequence[Sequence[Record]], begin_s: float, end_s: float) -> str | None:
    for own in histories:
        if own[0]["at_s"] > min(LATE_S, begin_s) or own[-1]["at_s"] < end_s - LATE_S:
            return f"the pages of {own[0]['source']} do not cover the baseline and the surge"
    return None


def _grown(
    own: Sequence[Record], read: Callable[[Values], list[float]], begin_s: float, end_s: float
) -> float:
    """How much a counter grew in that time, interpolated between pages; a restarted process counts on from 0."""
    times = [page["at_s"] for page in own]
    raw = [sum(read(page["values"])) for page in own]
    grown = [now - before if now >= before else now for before, now in itertools.pairwise(raw)]
    total = list(itertools.accumulate(grown, initial=0.0))
    begin, end = np.interp([begin_s, end_s], times, total)
    return float(end - begin)


def _attempts(values: Values) -> list[float]:
    """Requests that an engine saw: by its scheduler, in a pair; else by its HTTP server."""
    staged = [
        value
        for series, value in values.items()
        if series.startswith(ENGINE_STAGES + "{") and any(stage in series for stage in FIRST_STAGES)
    ]
    return staged or [
        value
        for series, value in values.items()
        if series.startswith(ENGINE_REQUESTS + "{") and CHAT in series
    ]
