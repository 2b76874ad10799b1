"""A summary as JSON, as Markdown, and as rows for a table on a terminal."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from toolkit.core.sample import SloClass
from toolkit.core.slo import Quantile, Slo
from workloads.own_error import SelfCheck, describe
from workloads.report.summary import Generator, Group, Summary
from workloads.scrape import Level

REPORT_VERSION = 1
STAND_IN = "simulated"  # the model name of stand-in engines
BLOCKED = "image_url_blocked"  # the gateway's code for a host that it may not fetch from
NOT_FOUND = frozenset(
    {"not_found", "model_not_found", "http_404"}
)  # how servers answer for a model they do not have
LEVEL_COLUMNS = ("source", "what", "mean", "max", "pages read")
LEVEL_UNITS = {
    "waiting": "requests waiting",
    "in flight": "requests in flight",
    "token usage": "share of KV tokens in use",
}

MEASURES = (
    "offered",
    "sent",
    "completed",
    "failed",
    "TTFT p50 ms",
    "TTFT p95 ms",
    "from send p50 ms",
    "from send p95 ms",
    "ITL p50 ms",
    "ITL p95 ms",
    "tokens/s",
    "SLO kept",
    "SLO kept, from send",
)
NOTES = (
    "TTFT: from the intended arrival; from send: the same token from the actual send. Both of completed requests.",
    "ITL: gaps between token events, pooled. SLO kept: TTFT and ITL within the class's limits, of all offered; from send:",
    "with TTFT from the send. Refused, broken and unsent requests keep none.",
    ">= is a lower bound (99 % confidence): too few samples for a value (p50 needs 11, p95 130, p99 662).",
)


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What a report says about the run beside its numbers."""

    profile: str
    target: str
    model: str
    seed: int
    arrival: str
    rate: float
    started_at: float  # Unix seconds
    toolkit_version: str
    concurrency: int = 0  # of a closed loop
    offer: str = ""  # what was offered in words, where arrival and rate do not say it all
    images_url: str = ""  # of the server that images were fetched from
    served: tuple[str, ...] = ()  # the models that the target lists
    slos: Mapping[SloClass, Slo] = field(
        default_factory=dict
    )  # the limits that were judged by; empty: not known


@dataclass(frozen=True, slots=True)
class Beside:
    """What stands beside the numbers. self_check: the generator's own error, where known. levels: of /metrics."""

    self_check: SelfCheck | None = None
    levels: tuple[Level, ...] = ()


NOTHING = Beside()


def to_json(facts: RunFacts, summary: Summary, beside: Beside = NOTHING) -> dict[str, Any]:
    """Plain JSON types under stable keys, seconds throughout."""
    check = beside.self_check
    return {
        "version": REPORT_VERSION,
        "run": asdict(facts),
        "window_s": summary.window_s,
        "measured_s": summary.measured_s,
        "interrupted": summary.interrupted,
        "verdict": verdict(summary.generator),
        "generator": {
            **asdict(summary.generator),
            "saturated": summary.generator.saturated,
            "self_check": None if check is None else check.to_dict(),
        },
        "total": _group_json(summary.total),
        "classes": {group.name: _group_json(group) for group in summary.groups},
        "returned": asdict(summary.returned),
        "levels": [asdict(level) for level in beside.levels],
    }


def to_markdown(facts: RunFacts, summary: Summary, beside: Beside = NOTHING) -> str:
    """A page with a row per class."""
    rows = [
        ("class", *MEASURES),
        ("---",) * (len(MEASURES) + 1),
        *((g.name, *cells(g)) for g in summary.every),
    ]
    table = ["| " + " | ".join(row) + " |" for row in rows]
    listed = [f"- {line}" for line in remarks(facts, summary, beside)]
    if beside.levels:
        levels = [LEVEL_COLUMNS, ("---",) * len(LEVEL_COLUMNS), *map(level_cells, beside.levels)]
        table += ["", *("| " + " | ".join(row) + " |" for row in levels)]
    lines = [f"# Load report: {facts.profile}", "", headline(facts, summary), "", *table, "", *listed, ""]
    return "\n".join([*lines, *(f"{note}  " for note in notes(facts, summary))]) + "\n"


def headline(facts: RunFacts, summary: Summary) -> str:
    """One line: what was asked of whom."""
    cut = ", interrupted" if summary.interrupted else ""
    sent = summary.total.sent / summary.window_s
    return (
        f"{_offer(facts)} for {summary.window_s:.0f} s{cut}, sent {sent:.3g}/s, seed {facts.seed}, "
        f"model {facts.model} at {facts.target}"
    )


def cells(group: Group) -> tuple[str, ...]:
    """One cell for each of MEASURES."""
    return (
        str(group.offered),
        str(group.sent),
        str(group.completed),
        str(group.failures),
        *(_cell(q) for q in (group.ttft.p50, group.ttft.p95, group.ttft_sent.p50, group.ttft_sent.p95)),
        *(_cell(q) for q in (group.itl.p50, group.itl.p95)),
        f"{group.tokens_per_s:.1f}",
        *("-" if share is None else f"{share:.1%}" for share in (group.attainment, group.attainment_sent)),
    )


def level_cells(level: Level) -> tuple[str, ...]:
    """One cell for each of LEVEL_COLUMNS."""
    return (
        level.source,
        LEVEL_UNITS.get(level.what, level.what),
        f"{level.mean:.3g}",
        f"{level.max:.3g}",
        str(level.pages),
    )


def notes(facts: RunFacts, summary: Summary) -> tuple[str, ...]:
    """What the words of the table mean, and the limits of the SLO classes in it."""
    present = summary.total.slo_classes
    told = "; ".join(f"{name.value} {_limits(slo)}" for name, slo in facts.slos.items() if name in present)
    return (*NOTES, f"SLO limits: {told}.") if told else NOTES


def _limits(slo: Slo) -> str:
    named = (("TTFT", slo.ttft_s), ("ITL P95", slo.itl_p95_s))
    return ", ".join(f"{name} {_ms(limit)} ms" for name, limit in named if limit is not None) or "no limit"


def remarks(facts: RunFacts, summary: Summary, beside: Beside = NOTHING) -> list[str]:
    """What a reader must know beside the table."""
    lines = [
        f"{group.name} failed: " + ", ".join(f"{code} {count}" for code, count in group.failed.items())
        for group in summary.groups
        if group.failed
    ]
    lines += _let_in(facts, summary) + _model_unknown(facts, summary)
    if summary.total.empty:
        lines.append(
            f"{summary.total.empty} completed answers carried no token; they have no TTFT and miss their SLO."
        )
    if summary.total.degraded:
        lines.append(
            f"degraded (x-toolkit-degraded): {summary.total.degraded} completed answers, {summary.total.degraded_kept} within"
            " their limits; none counts as kept"
        )
    offered = summary.total.offered / summary.window_s
    lines.append(
        f"goodput {summary.total.goodput:.2f}/s of {offered:.2f}/s offered, "
        f"{summary.total.goodput_sent:.2f}/s counted from the send ({_asked(facts)})"
    )
    if (returned := summary.returned).came_back:
        lines.append(
            f"came back: {returned.came_back}, admitted {returned.admitted}, within their SLO from then {returned.good}; "
            "counted nowhere else"
        )
    return [*_computed(facts), *lines, verdict(summary.generator), describe(beside.self_check)]


def _computed(facts: RunFacts) -> list[str]:
    """Nobody may take a formula's speed for a machine's."""
    told = "SIMULATED engine: its times are computed by a formula; none of these is a figure of any hardware"
    return [told] if facts.model == STAND_IN else []


def verdict(generator: Generator) -> str:
    """Whether the numbers can be the server's."""
    word = "generator saturated" if generator.saturated else "generator on time"
    return (
        f"{word}: slip p50 {_ms(generator.slip_p50_s)} ms, p99 {_ms(generator.slip_p99_s)} ms "
        f"(limit {_ms(generator.slip_limit_s)}), delivered {generator.delivered:.1%} of the schedule, "
        f"{generator.cpu_share:.0%} of a core"
    )


def _asked(facts: RunFacts) -> str:
    if facts.concurrency:
        return "closed loop: the load fell with the server's speed"
    drawn = "" if facts.arrival == "trace" else "; drawn arrivals are not rescaled to it"
    return f"asked: {_offer(facts)}{drawn}"


def _offer(facts: RunFacts) -> str:
    if facts.concurrency:
        return f"closed loop of {facts.concurrency}"
    return facts.offer or f"{facts.arrival} arrivals at {facts.rate:g}/s"


def _let_in(facts: RunFacts, summary: Summary) -> list[str]:
    """How a gateway of this toolkit is told to fetch from the run's own image server, which is on no public host."""
    if not facts.images_url or BLOCKED not in summary.total.failed:
        return []
    host = facts.images_url.partition("://")[2]
    return [
        f"{BLOCKED}: the target does not fetch from {host}; start it with --set 'access.allowed_hosts=[\"{host}\"]'"
    ]


def _model_unknown(facts: RunFacts, summary: Summary) -> list[str]:
    """A model that nobody serves, where that is why requests were not answered."""
    unknown = NOT_FOUND.intersection(summary.total.failed)
    if not unknown or not facts.served or facts.model in facts.served:
        return []
    codes, served = ", ".join(sorted(unknown)), ", ".join(facts.served)
    return [f"{codes}: asked for model {facts.model}; {facts.target}/v1/models lists {served}"]


def _cell(q: Quantile | None) -> str:
    if q is None:
        return "-"
    if q.firm:
        return _ms(q.estimate)
    return "-" if q.lower is None else f">= {_ms(q.lower)}"


def _ms(seconds: float) -> str:
    ms = seconds * 1000
    return f"{ms:.0f}" if abs(ms) >= 99.5 else f"{ms:.1f}"


def _group_json(group: Group) -> dict[str, Any]:
    table = asdict(group)
    table.pop("name")
    table["slo_classes"] = [name.value for name in group.slo_classes]
    for key in ("ttft", "ttft_sent", "itl"):
        table[f"{key}_s"] = {p: _quantile_json(q) for p, q in table.pop(key).items()}
    return table


def _quantile_json(q: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if q is None else {**q, "firm": q["upper"] is not None}
