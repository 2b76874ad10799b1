"""The sweep of lease caps as JSON and as a page."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from workloads.folders import put
from workloads.lease_cap import Advice, Row

VERSION = 1
JSON, PAGE = "lease-cap.json", "lease-cap.md"
ARTICLE: Mapping[float, tuple[str, str, str]] = {
    0.30: ("99.2 %", "3.7 s", "61 %"),
    0.15: ("99.0 %", "2.1 s", "78 %"),
    0.08: ("85.0 %", "1.9 s", "83 %"),
}
"""Section 4.2: long success, short TTFT P95, pool use."""

COLUMNS = (
    "cap", "long success", "short TTFT P95", "pool use", "over the cap (413)", "refused or late", "waits: for KV", "for slots"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Report:
    """All that is known. advice: None until the sweep is whole. started_at: Unix seconds."""

    profile: str
    target: str
    seed: int
    long_loss: float
    rows: tuple[Row, ...]
    advice: Advice | None
    started_at: float

    @property
    def finished(self) -> bool:
        return self.advice is not None

    def with_rows(self, rows: tuple[Row, ...], advice: Advice | None) -> "Report":
        return replace(self, rows=rows, advice=advice)


def to_json(report: Report) -> dict[str, Any]:
    """Plain JSON types under stable keys; seconds, parts of 1; null where a figure is not known or never came."""
    rows = [
        asdict(row)
        | {"long_success": row.long_success.to_dict(), "short_ttft_p95_s": row.short_ttft_p95_s.to_dict()}
        | {"over_cap": row.over_cap}
        for row in report.rows
    ]
    document = {
        "version": VERSION,
        "profile": report.profile,
        "target": report.target,
        "seed": report.seed,
        "started_at": report.started_at,
        "finished": report.finished,
        "long_loss": report.long_loss,
        "recommended_cap": report.advice.cap if report.advice else None,
        "why": report.advice.why if report.advice else "the sweep is not whole",
        "rows": rows,
    }
    return {key: _plain(value) for key, value in document.items()}


def to_markdown(report: Report) -> str:
    """The table, the article's beside it, and the advice."""
    lines = [
        f"# Caps on KV leases: profile {report.profile} at {report.target}",
        "",
        "95 % intervals in brackets. Long success: completed of those offered. Short TTFT P95: from the intended arrival, who has",
        "no first token counts as later than any. Waits: share of the time in which somebody waited, for blocks (a slot was",
        "free) or for a slot.",
        "",
        "| " + " | ".join((*COLUMNS, "article: long success, short P95, pool use")) + " |",
        "|" + "---|" * (len(COLUMNS) + 1),
        *(
            "| " + " | ".join((*cells(row), ", ".join(ARTICLE.get(row.cap, ())))) + " |"
            for row in report.rows
        ),
        "",
        verdict(report),
    ]
    return "\n".join([*lines, ""])


def verdict(report: Report) -> str:
    """One line."""
    if report.advice is None:
        return "The sweep was ended before each cap had all its runs: no advice."
    if report.advice.cap is None:
        return f"No cap is recommended: {report.advice.why}"
    return f"Recommended for this profile: lease.cap = {report.advice.cap:g}. {report.advice.why}"


def cells(row: Row) -> tuple[str, ...]:
    """As in COLUMNS."""
    other = row.long_offered - row.long_ended.get("completed", 0) - row.over_cap
    return (
        f"{row.cap:.0%}",
        f"{row.long_success.value:.1%} [{row.long_success.low:.1%}, {row.long_success.high:.1%}] of {row.long_offered}",
        f"{_seconds(row.short_ttft_p95_s.value)} [{_seconds(row.short_ttft_p95_s.low)}, {_seconds(row.short_ttft_p95_s.high)}] of {row.short_offered}",
        _share(row.pool_use),
        str(row.over_cap),
        str(other),
        _share(row.kv_binds),
        _share(row.slots_bind),
    )


def write(folder: Path, report: Report) -> None:
    """Both, as far as is known."""
    put(folder, {JSON: json.dumps(to_json(report), indent=2) + "\n", PAGE: to_markdown(report)})


def _plain(value: Any) -> Any:
    """JSON has neither infinity nor nan."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list) else value


def _seconds(value: float) -> str:
    return "never" if math.isinf(value) else f"{value:.2f} s"


def _share(value: float) -> str:
    return "not told" if math.isnan(value) else f"{value:.0%}"
