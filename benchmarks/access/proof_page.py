"""The measured as a page: tables, bounds, and what they mean, in words made from the figures."""

import math
import os
import platform
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version

from proof_fronts import BARE, GATEWAY, NAIVE
from proof_payloads import BOMBS, LARGE, MIDDLE, PHOTOS, PROGRESSIVE, READY, SMALL, TEXT
from proof_records import OWN, Incident, Measured, Row, median

FRONTS = (BARE, GATEWAY, NAIVE)
MIDDLE_SHARE, LARGE_SHARE, TEXT_TIMES, EVEN = 0.35, 0.2, 2.0, 1.5
"""12 and 48 megapixels' TTFT over the bare pair's; text beside uploads over text alone; the dearest photo's engine CPU
over the cheapest's, where idle ticks and a busy host already make a third."""


@dataclass(frozen=True)
class Run:
    """How it was measured. load: average of a minute, before and after."""

    took_s: float
    load: tuple[float, float]
    quick: bool


def page(found: Measured, run: Run) -> tuple[str, list[str]]:
    """The page, and the bounds that are not kept."""
    bounds = list(_bounds(found))
    verdicts = [f"| {what} | {seen} | {'kept' if kept else '**not kept**'} |" for what, seen, kept in bounds]
    lines = [
        "# The access layer on the real pair",
        "",
        *_wrapped(_how(found, run)),
        "",
        "## One request at a time",
        "",
        "TTFT, seconds, median; beside it the gateway's over the other's.",
        "",
        "| sent | bare pair | gateway | naive front | over bare | over naive | answers: bare, gateway, naive |",
        "|---|---|---|---|---|---|---|",
        *(_ttft_line(found, payload) for payload in (TEXT, *PHOTOS, *BOMBS)),
        "",
        "CPU seconds per request over what idle costs, and the most memory of a front over the moment before (MB, PSS with its",
        "children). Both legs of the pair are in the engines' column.",
        "",
        "| sent | engines: bare | gateway | naive | front: gateway | naive | all: gateway over bare | over naive | memory: gateway | naive |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *(_cpu_line(found, payload) for payload in (TEXT, *PHOTOS, *BOMBS)),
        "",
        "## The incident: text at 4/s, alone and beside a photo every two seconds",
        "",
        "Text's TTFT in seconds from the instant it was due, by rank, a failed one counted as later than any. Default class: the",
        "gateway ends with 504 what has no first token after 3 s; the others know no budget.",
        "",
        "| through | beside | text p50 | p95 | texts ended | uploads ended | uploads' TTFT p50 |",
        "|---|---|---|---|---|---|---|",
        *(_incident_line(one) for one in found.incidents),
        "",
        "Cores kept busy in those windows, of " + f"{os.cpu_count()}:",
        "",
        "| through | beside | engines | gateway | naive front | the client itself | left over |",
        "|---|---|---|---|---|---|---|",
        *(_cores_line(one) for one in found.incidents),
        "",
        "## Bounds",
        "",
        "| bound | measured | |",
        "|---|---|---|",
        *verdicts,
        "",
        "## What it shows",
        "",
        *(line for said in _explanations(found) for line in (*_wrapped(f"- {said}", "  "),)),
    ]
    return "\n".join([*lines, ""]), [f"{what}: {seen}" for what, seen, kept in bounds if not kept]


def _how(found: Measured, run: Run) -> str:
    told = "`--quick`: every payload once. " if run.quick else ""
    if found.sent_again:
        told += f"{found.sent_again} requests of the table failed at the pair and were sent again. "
    if run.load[0] > 1.0:
        told += "**The machine was busy with other work**: times of decoding, which runs at low priority, are not to be trusted. "
    return (
        f"`benchmarks/access/proof.py`, {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC, {run.took_s / 60:.0f} minutes. {told}"
        f"{os.cpu_count()} cores ({platform.machine()}), load average {run.load[0]:.1f} before and {run.load[1]:.1f} after, "
        f"Python {platform.python_version()}, Pillow {version('pillow')}. One pair of SGLang 0.5.23 on CPUs (tiny vision-language model), "
        "the gateway with its defaults but no image cache, and a front that decodes every image in full with Pillow on asyncio's "
        "default threads. Engines, fronts and the client share the cores, so read ratios. Every request shows another picture; "
        "the ways take turns. Straight means: both legs posted with their bootstrap fields by the benchmark, the image as it is."
    )


def _of(found: Measured, payload: str, front: str) -> list[Row]:
    return [row for row in found.rows if (row.payload, row.front) == (payload, front)]


def _ttft(found: Measured, payload: str, front: str) -> float:
    return median([row.shot.ttft_s for row in _of(found, payload, front) if row.shot.ttft_s is not None])


def _value(found: Measured, payload: str, front: str, of: Callable[[Row], float | None]) -> float:
    return median([value for row in _of(found, payload, front) if (value := of(row)) is not None])


def _engines(found: Measured, payload: str, front: str) -> float:
    return _value(found, payload, front, lambda row: row.engines_s)


def _ttft_line(found: Measured, payload: str) -> str:
    bare, ours, naive = (_ttft(found, payload, front) for front in FRONTS)
    cells = [*map(_seconds, (bare, ours, naive)), _ratio(ours, bare), _ratio(ours, naive)]
    answers = ", ".join(_answers(found, payload, front) for front in FRONTS)
    return f"| {payload} | " + " | ".join([*cells, answers]) + " |"


def _answers(found: Measured, payload: str, front: str) -> str:
    said = sorted({f"{row.shot.status} {row.shot.code}".strip() for row in _of(found, payload, front)})
    return " / ".join(said) or "not sent"


def _cpu_line(found: Measured, payload: str) -> str:
    engines = [_engines(found, payload, front) for front in FRONTS]
    fronts = [_value(found, payload, front, lambda row: row.front_s) for front in (GATEWAY, NAIVE)]
    memory = [_value(found, payload, front, lambda row: row.growth_mb) for front in (GATEWAY, NAIVE)]
    ours, naive = (engine + front for engine, front in zip(engines[1:], fronts, strict=True))
    cells = [
        *map(_seconds, (*engines, *fronts)),
        _ratio(ours, engines[0]),
        _ratio(ours, naive),
        *("" if math.isnan(value) else f"{value:.0f}" for value in memory),
    ]
    return f"| {payload} | " + " | ".join(cells) + " |"


def _incident_line(one: Incident) -> str:
    texts, uploads = (
        ", ".join(f"{n} x {what}" for what, n in sorted(some.items())) for some in (one.texts, one.uploads)
    )
    cells = [
        _late(one.percentile(0.5)),
        _late(one.percentile(0.95)),
        texts,
        uploads,
        _seconds(median(one.upload_ttfts_s)),
    ]
    return f"| {one.front} | {one.beside or 'nothing'} | " + " | ".join(cells) + " |"


def _cores_line(one: Incident) -> str:
    names = ("engines", GATEWAY, NAIVE, OWN)
    cells = [f"{one.cores[name]:.2f}" for name in names] + [f"{_left(one):.2f}"]
    return f"| {one.front} | {one.beside or 'nothing'} | " + " | ".join(cells) + " |"


def _left(one: Incident) -> float:
    """Idle, or taken by somebody else on this machine."""
    return (os.cpu_count() or 1) - sum(one.cores.values())


def _bounds(found: Measured) -> Iterator[tuple[str, str, bool]]:
    for payload, most in ((MIDDLE, MIDDLE_SHARE), (LARGE, LARGE_SHARE), (PROGRESSIVE, LARGE_SHARE)):
        share = _ttft(found, payload, GATEWAY) / _ttft(found, payload, BARE)
        yield (
            f"{payload}: TTFT through the gateway <= {most:g}x the bare pair's",
            f"{share:.2f}x",
            share <= most,
        )
    spent = [_engines(found, payload, GATEWAY) for payload in PHOTOS]
    even = max(spent) / max(0.01, min(spent))  # a clock tick
    seen = f"{min(spent):.2f} to {max(spent):.2f} CPU s, {even:.2f}x"
    yield f"engines' CPU through the gateway does not depend on the photo: <= {EVEN:g}x", seen, even <= EVEN
    for payload in BOMBS:
        rows = _of(found, payload, GATEWAY)
        typed = all(400 <= row.shot.status < 500 and row.shot.code for row in rows)
        yield f"{payload}: a typed 4xx", _answers(found, payload, GATEWAY), bool(rows) and typed
    alone, beside = (_incident(found, GATEWAY, beside).percentile(0.95) for beside in ("", LARGE))
    seen = f"{_late(beside)} s beside, {_late(alone)} s alone: {_ratio(beside, alone)}"
    yield f"text's TTFT p95 beside uploads <= {TEXT_TIMES:g}x alone", seen, beside <= TEXT_TIMES * alone


def _incident(found: Measured, front: str, beside: str) -> Incident:
    return next(one for one in found.incidents if (one.front, one.beside) == (front, beside))


def _explanations(found: Measured) -> Iterator[str]:
    bare, ours = (_engines(found, LARGE, front) for front in (BARE, GATEWAY))
    front = _value(found, LARGE, GATEWAY, lambda row: row.front_s)
    naive = _value(found, LARGE, NAIVE, lambda row: row.front_s)
    yield (
        f"Straight to SGLang a 48 MP photo takes {bare:.1f} CPU s, because both legs decode it in full; through the gateway the engines "
        f"spend {ours:.2f} and the gateway {front:.2f}, {(ours + front) / bare:.0%} of it. The naive front spends {naive:.2f} itself: "
        "it decodes every pixel before it throws most of them away."
    )
    yield (
        f"What the engines get is the size their model sees, so their work is that of a {SMALL} ({_engines(found, SMALL, GATEWAY):.2f} CPU s), "
        f"whatever was uploaded; a short text takes {_engines(found, TEXT, GATEWAY):.2f}."
    )
    text = [_ttft(found, TEXT, one) for one in (BARE, GATEWAY)]
    yield (
        f"Alone, the hop through the gateway costs a short text {(text[1] - text[0]) * 1e3:+.0f} ms of TTFT ({text[0] * 1e3:.0f} ms straight), "
        f"and {_value(found, TEXT, GATEWAY, lambda row: row.front_s) * 1e3:.0f} ms of CPU (in steps of 10)."
    )
    for payload in BOMBS:
        if _of(found, payload, BARE):
            yield (
                f"The bare pair takes the {payload} ({_answers(found, payload, BARE)}) and burns {_engines(found, payload, BARE):.0f} CPU s on it; "
                f"the gateway reads its structure, answers {_answers(found, payload, GATEWAY)} and the engines never see it."
            )
    yield from _of_the_incident(found)


def _of_the_incident(found: Measured) -> Iterator[str]:
    alone, ready, beside = (_incident(found, GATEWAY, beside) for beside in ("", READY, LARGE))
    bare, naive = (_incident(found, front, LARGE) for front in (BARE, NAIVE))
    yield (
        f"The incident: beside uploads the pair alone answers text with a p95 of {_late(bare.percentile(0.95))} s, behind the naive front "
        f"{_late(naive.percentile(0.95))} s, behind the gateway {_late(beside.percentile(0.95))} s ({_late(alone.percentile(0.95))} s without uploads)."
    )
    bare_alone, bare_ready = (_incident(found, BARE, beside).percentile(0.95) for beside in ("", READY))
    yield (
        f"The engines' own share of that: beside as many {READY}s, which nobody has to shrink, text has a p95 of {_late(ready.percentile(0.95))} s "
        f"through the gateway ({_ratio(ready.percentile(0.95), alone.percentile(0.95))} alone) and {_late(bare_ready)} s straight "
        f"({_ratio(bare_ready, bare_alone)}): no front that lets images through can do better on this pair. Photos of 48 MP instead of "
        f"those cost text {_ratio(beside.percentile(0.95), ready.percentile(0.95))} through the gateway, "
        f"{_ratio(bare.percentile(0.95), bare_ready)} straight."
    )
    texts = beside.cores["engines"] - alone.cores["engines"]
    yield (
        f"What is left of it on {os.cpu_count()} shared cores: uploads add {beside.cores[GATEWAY] - alone.cores[GATEWAY]:.2f} cores of gateway, "
        f"{texts:.2f} of engines (their prefill holds text back for as long as one image's prefill takes: one batch at a time) and "
        f"{beside.cores[OWN] - alone.cores[OWN]:.2f} of the client, which sends 22 MB a photo; {_left(beside):.2f} cores were idle or other people's. "
        "On machines of their own the gateway's and the client's shares fall away."
    )


def _seconds(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.2f}" if value < 10 else f"{value:.0f}"


def _late(value: float) -> str:
    return "never" if math.isinf(value) else f"{value:.2f}"


def _ratio(one: float, other: float) -> str:
    if math.isnan(one) or math.isnan(other) or not other or math.isinf(other):
        return ""
    return "beyond any" if math.isinf(one) else f"{one / other:.2f}x"


def _wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(text, 118, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
