"""The storm as a page: tables, bounds, and whether they were kept."""

import os
import platform
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.schedule.storm_load import BUDGET_S, TRIES, TRY_S, Shot

ATTEMPTS, BACK_S, ALONE_S = 1.15, 30.0, 15.0
BLACKLIST_S = 30.0
"""SGLang's own look at a session that it gave up (mooncake/conn.py, _failed_session_probe_loop)."""
BACK_SHARE, BIN_S = 0.9, 5.0
"""Attainment is back from the first step of BIN_S after which none keeps less than this part of the calm's."""
TYPED = frozenset(
    {"engine_unavailable", "queue_too_long", "queue_full", "ttft_budget_exceeded", "engine_busy"}
)
AVALANCHE, SLIP_S, CALM = 1.5, 0.5, 0.9


@dataclass(frozen=True)
class Measured:
    """polls: the probability at SGLang's hook; share: of single attempts that failed with it."""

    polls: float
    share: float
    ours: list[Shot]
    naive: list[Shot]
    alone: list[Shot]
    simulated: bool


@dataclass(frozen=True)
class Run:
    """times_s: hook on, freeze, its length, hook off, last request. broken_s: with one pair, transfers fail, for so long."""

    rate: float
    took_s: float
    load: tuple[float, float]
    times_s: tuple[float, float, float, float, float]
    broken_s: tuple[float, float]


def between(shots: Sequence[Shot], begin_s: float, end_s: float) -> list[Shot]:
    return [one for one in shots if begin_s <= one.due_s < end_s]


def kept(shots: Sequence[Shot]) -> float:
    """The share with a first token within the budget; 1 of none."""
    return sum(one.good for one in shots) / len(shots) if shots else 1.0


def attempts(shots: Sequence[Shot]) -> float:
    return sum(one.attempts for one in shots) / len(shots) if shots else 0.0


def back_after(shots: Sequence[Shot], end_s: float, last_s: float, calm: float) -> float | None:
    """Seconds from end_s to the end of the last step that kept too little; None: the very last one did."""
    back, at = 0.0, end_s
    while at < last_s:
        if kept(between(shots, at, at + BIN_S)) < BACK_SHARE * calm:
            back = at + BIN_S - end_s
        at += BIN_S
    return None if end_s + back >= last_s else back


def page(found: Measured, run: Run) -> tuple[str, list[str]]:
    """The page, and the bounds that are not kept."""
    bounds = list(_bounds(found, run))
    engines = (
        "stand-ins (SIMULATED: no figure of any hardware)"
        if found.simulated
        else "SGLang 0.5.23 on CPUs (tiny vision-language model)"
    )
    hook, freeze, long, end, last = run.times_s
    told = (
        f"`benchmarks/schedule/storm.py`, {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC, {run.took_s / 60:.0f} minutes, "
        f"{os.cpu_count()} cores ({platform.machine()}), load average {run.load[0]:.1f} before and {run.load[1]:.1f} after. One "
        f"prefill and two decodes of {engines}; text requests at {run.rate:g}/s (Poisson, the same for both), the first token "
        f"within {BUDGET_S:g} s of when each was due. From {hook:g} s on a poll of a transfer fails with p = {found.polls:.2g}, "
        f"at which {found.share:.0%} of single attempts failed; from {freeze:g} s prefill stands still for {long:g} s; all is "
        f"well again from {end:g} s on; the last request comes at {last:g} s. The naive front takes the pairs in turn, gives "
        f"each try {TRY_S:g} s to its first token, retries at once, {TRIES - 1} times at most, and aborts nothing. Engines, "
        "gateway and clients share the cores: read ratios and shapes."
    )
    rows = [f"| {what} | {cell(found.ours)} | {cell(found.naive)} |" for what, cell in _rows(run)]
    alone = [one for one in found.alone if one.due_s >= run.broken_s[0]]
    lines = [
        "# A retry storm, and who comes back from it",
        "",
        *textwrap.wrap(told, 118),
        "",
        "| | gateway | naive front |",
        "|---|---|---|",
        *rows,
        "",
        f"## By when they were due (steps of {BIN_S:g} s)",
        "",
        "| from s | asked /s | good /s: gateway | naive | attempts /s: gateway | naive |",
        "|---|---|---|---|---|---|",
        *_timeline(found, last),
        "",
        "## One pair alone",
        "",
        *textwrap.wrap(
            f"A gateway that knows one of the pairs. From {run.broken_s[0]:g} s transfers fail for {run.broken_s[1]:g} s, and "
            "SGLang blacklists the session; there is nowhere else to go.",
            118,
        ),
        "",
        "| | |",
        "|---|---|",
        f"| good before | {kept(between(found.alone, 0, run.broken_s[0])):.0%} |",
        f"| first good request after the failure | {_first_good(alone, run)} |",
        f"| attempts per request from the failure on | {attempts(alone):.2f} |",
        f"| what the others were told | {_codes(alone)} |",
        "",
        "## Bounds",
        "",
        "| bound | measured | |",
        "|---|---|---|",
        *(f"| {what} | {seen} | {'kept' if well else '**not kept**'} |" for what, seen, well in bounds),
        "",
    ]
    return "\n".join(lines), [f"{what}: {seen}" for what, seen, well in bounds if not well]


def _rows(run: Run) -> Iterator[tuple[str, Callable[[list[Shot]], str]]]:
    hook, freeze, _, end, last = run.times_s
    yield "good while all is well", lambda shots: f"{kept(between(shots, 0, hook)):.0%}"
    yield "good while transfers fail", lambda shots: f"{kept(between(shots, hook, freeze)):.0%}"
    yield "good from the freeze to the end", lambda shots: f"{kept(between(shots, freeze, end)):.0%}"
    yield f"good in the {BACK_S:g} s after", lambda shots: f"{kept(between(shots, end, end + BACK_S)):.0%}"
    yield "attempts per request while all is well", lambda shots: f"{attempts(between(shots, 0, hook)):.2f}"
    yield (
        "attempts per request from the first fault on",
        lambda shots: f"{attempts(between(shots, hook, last)):.2f}",
    )
    yield "most attempts of one request", lambda shots: f"{max(one.attempts for one in shots)}"
    yield "attainment back after", lambda shots: _seconds(_back(shots, run))
    yield "what failures were told", _codes
    yield "most that a request was asked late", lambda shots: f"{max(one.slip_s for one in shots):.2f} s"
    yield "most attempts in a second", lambda shots: f"{_most_in_a_step(shots, last):.0f}"


def _most_in_a_step(shots: list[Shot], last: float) -> float:
    """Per second, over a step; by when the requests were due."""
    steps = (at * BIN_S for at in range(int(last / BIN_S)))
    return max(sum(one.attempts for one in between(shots, at, at + BIN_S)) for at in steps) / BIN_S


def _back(shots: list[Shot], run: Run) -> float | None:
    hook, _, _, end, last = run.times_s
    return back_after(shots, end, last, kept(between(shots, 0, hook)))


def _bounds(found: Measured, run: Run) -> Iterator[tuple[str, str, bool]]:
    hook, _, _, _, last = run.times_s
    ours, naive = (attempts(between(shots, hook, last)) for shots in (found.ours, found.naive))
    yield f"attempts per request from the first fault on <= {ATTEMPTS:g}", f"{ours:.2f}", ours <= ATTEMPTS
    back = _back(found.ours, run)
    yield (
        f"attainment back <= {BACK_S:g} s after the faults",
        _seconds(back),
        back is not None and back <= BACK_S,
    )
    yield (
        f"naive retries show the avalanche: >= {AVALANCHE:g}x our attempts",
        f"{naive / ours:.1f}x",
        naive >= AVALANCHE * ours,
    )
    most_s = BLACKLIST_S + ALONE_S
    broken = run.broken_s[0]
    alone = between(found.alone, broken, last)
    calm = kept(between(found.alone, 0, broken))
    back = back_after(found.alone, broken, max(one.due_s for one in found.alone), calm)
    yield (
        f"one pair: attainment back <= {most_s:g} s after the failure (blacklist and {ALONE_S:g} s)",
        _seconds(back),
        back is not None and back <= most_s,
    )
    others = {one.code for one in alone if one.ttft_s is None} - TYPED
    unavailable = sum(one.code == "engine_unavailable" for one in alone)
    yield (
        "one pair: meanwhile a typed 503",
        f"{unavailable} x engine_unavailable" + (f", but also {', '.join(sorted(others))}" if others else ""),
        unavailable > 0 and not others,
    )


def _timeline(found: Measured, last: float) -> Iterator[str]:
    at = 0.0
    while at < last:
        ours, naive = (between(shots, at, at + BIN_S) for shots in (found.ours, found.naive))
        good = [sum(one.good for one in shots) / BIN_S for shots in (ours, naive)]
        made = [sum(one.attempts for one in shots) / BIN_S for shots in (ours, naive)]
        yield f"| {at:g} | {len(ours) / BIN_S:.1f} | {good[0]:.1f} | {good[1]:.1f} | {made[0]:.1f} | {made[1]:.1f} |"
        at += BIN_S


def _first_good(shots: list[Shot], run: Run) -> str:
    failed = next((one.due_s for one in shots if not one.good), None)
    if failed is None:
        return "none failed"
    good = next((one.due_s for one in shots if one.good and one.due_s > failed), None)
    return "none" if good is None else f"{good - run.broken_s[0]:.0f} s"


def _codes(shots: list[Shot]) -> str:
    codes = Counter(f"{one.status} {one.code}" for one in shots if one.ttft_s is None)
    late = sum(one.ttft_s is not None and not one.good for one in shots)
    return (
        ", ".join(
            [f"{count} x {code}" for code, count in codes.most_common()]
            + ([f"{late} answered late"] if late else [])
        )
        or "none failed"
    )


def _seconds(value: float | None) -> str:
    return "not before the end" if value is None else f"{value:.0f} s"
