"""What a search for the peak found, as data, as JSON, as a page."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workloads.peak import Found, Tried, Verdict
from workloads.sequential import Bounds

PEAK_VERSION = 1
PEAK_JSON, PEAK_PAGE = "peak.json", "peak.md"
COLUMNS = ("probe", "rate/s", "requests", "SLO kept", "interval", "verdict", "seconds", "why")


@dataclass(frozen=True, slots=True)
class ClassReading:
    """One SLO class in one probe, or all. required: it had requests enough to be confirmed, so it had to be."""

    name: str
    requests: int
    attainment: Bounds
    decision: str
    required: bool


@dataclass(frozen=True, slots=True)
class Probe:
    """One probe. seconds: of load. quiet_after_s: wait before it until the target was quiet; None: it was not."""

    number: int
    rate: float
    verdict: Verdict
    seconds: float
    classes: tuple[ClassReading, ...]  # the last one is all of them
    failed_class: str | None
    misses: Mapping[str, int]
    generator: str
    quiet_after_s: float | None
    folder: str
    why: str

    @property
    def overall(self) -> ClassReading:
        return self.classes[-1]

    @property
    def tried(self) -> Tried:
        return Tried(self.rate, self.verdict)


@dataclass(frozen=True, slots=True)
class PeakReport:
    """All that is known. found: what follows from the probes so far. finished: the search came to its own end."""

    profile: str
    target: str
    model: str
    seed: int
    objective: float
    confidence: float
    low: float
    high: float
    max_probes: int
    warmup_s: float
    block_s: float
    started_at: float
    toolkit_version: str
    probes: tuple[Probe, ...]
    found: Found
    finished: bool
    interrupted: bool
    named: str = ""

    @property
    def next_command(self) -> str | None:
        """What to run with this peak."""
        return (
            None
            if self.found.peak is None
            else f"toolkit surge --profile {self.named or self.profile} --peak {self.found.peak:g} --target {self.target}"
        )


def to_json(report: PeakReport) -> dict[str, Any]:
    """Plain JSON types under stable keys; seconds, requests per second, shares of 1."""
    found = report.found
    return {
        "version": PEAK_VERSION,
        "toolkit_version": report.toolkit_version,
        "profile": report.profile,
        "target": report.target,
        "model": report.model,
        "seed": report.seed,
        "started_at": report.started_at,
        "objective": report.objective,
        "confidence": report.confidence,
        "finished": report.finished,
        "interrupted": report.interrupted,
        "peak": found.peak,
        "not_held": found.not_held,
        "reason": found.reason,
        "next": report.next_command,
        "search": {"low": report.low, "high": report.high, "max_probes": report.max_probes},
        "test": {"warmup_s": report.warmup_s, "block_s": report.block_s},
        "probes": [_probe_json(probe) for probe in report.probes],
    }


def last_peak(runs_dir: Path, profile: str, target: str) -> tuple[float, Path] | None:
    """The peak of the newest finished search of that profile at that target, and its folder; None without one."""
    newest: tuple[float, float, Path] | None = None
    for path in runs_dir.glob(f"*/{PEAK_JSON}"):
        try:
            known = json.loads(path.read_text(encoding="utf-8"))
            same = known["finished"] and (known["profile"], known["target"]) == (profile, target)
            if same and known["peak"] is not None and (newest is None or known["started_at"] > newest[0]):
                newest = (float(known["started_at"]), float(known["peak"]), path.parent)
        except (OSError, ValueError, LookupError, TypeError):
            continue  # somebody else's file
    return None if newest is None else newest[1:]


def to_markdown(report: PeakReport) -> str:
    """A page: the result, a row per probe, the classes of each."""
    rows = [COLUMNS, ("---",) * len(COLUMNS), *(cells(probe) for probe in report.probes)]
    table = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(
        [
            f"# Peak: {report.profile}",
            "",
            *(f"{line}  " for line in headline(report)),
            "",
            *table,
            "",
            *notes(report),
            "",
        ]
    )


def headline(report: PeakReport) -> list[str]:
    """The result in words."""
    found = report.found
    asked = (
        f"{report.objective:.4g} of the requests within their SLO, with {report.confidence:.0%} confidence"
    )
    if report.interrupted:
        state = "interrupted"
    elif not report.finished:
        state = "under way"
    else:
        state = found.reason
    if found.peak is None:
        under = "" if found.not_held is None else f" (lowest tried and not held: {found.not_held:g}/s)"
        result = f"no rate held{under}"
    else:
        above = (
            "perhaps more, since no higher rate was seen to fail"
            if found.not_held is None
            else f"{found.not_held:g}/s was not held"
        )
        result = f"peak {found.peak:g}/s; {above}"
    return [
        f"{result}: {state}",
        f"{asked}; profile {report.profile}, model {report.model} at {report.target}",
    ]


def notes(report: PeakReport) -> list[str]:
    """What a reader must know beside the table."""
    lines = [
        f"SLO kept: of all offered after {report.warmup_s:g} s of warm-up, TTFT from the intended arrival. Interval: where the",
        f"test's bets at {report.confidence:.0%} were won; held: its lower end reaches the objective. undecided: the probe's time ran out.",
        "A probe ends when it is decided; what was open then stands in its own report as unfinished.",
    ]
    lines += [
        f"probe {p.number}: the target was not quiet before it"
        for p in report.probes
        if p.quiet_after_s is None
    ]
    if report.found.peak is not None:
        lines += ["", f"Next: {report.next_command}"]
    return lines


def cells(probe: Probe) -> tuple[str, ...]:
    """One cell for each of COLUMNS."""
    reading = probe.overall
    seen = reading.attainment
    return (
        str(probe.number),
        f"{probe.rate:g}",
        str(reading.requests),
        "-" if seen.value is None else f"{seen.value:.1%}",
        f"{seen.low:.1%} to {seen.high:.1%}",
        probe.verdict.value,
        f"{probe.seconds:.0f}",
        probe.why,
    )


def _probe_json(probe: Probe) -> dict[str, Any]:
    return {
        "number": probe.number,
        "rate": probe.rate,
        "verdict": probe.verdict.value,
        "requests": probe.overall.requests,
        "attainment": probe.overall.attainment.to_dict(),
        "seconds": round(probe.seconds, 3),
        "failed_class": probe.failed_class,
        "misses": dict(probe.misses),
        "why": probe.why,
        "generator": probe.generator,
        "quiet_after_s": None if probe.quiet_after_s is None else round(probe.quiet_after_s, 3),
        "folder": probe.folder,
        "classes": {
            reading.name: {
                "requests": reading.requests,
                "attainment": reading.attainment.to_dict(),
                "decision": reading.decision,
                "required": reading.required,
            }
            for reading in probe.classes
        },
    }
