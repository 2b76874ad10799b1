"""What the load generator knows of its own error: the last self-check of this machine, as a record beside every report."""

import json
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

MAX_TTFT_ERROR_P50_S = 0.001
MAX_TTFT_ERROR_P99_S = 0.010
MAX_SLIP_P99_S = 0.005  # as a report's verdict has it
MIN_DELIVERED = 0.99


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """The generator's own error at one rate on one machine. Seconds but for `us_per_event`."""

    rate: float
    duration_s: float
    checked_at: float  # Unix seconds
    versions: Mapping[str, str]
    requests: int
    completed: int
    delivered: float
    ttft_error_p50_s: float
    ttft_error_p99_s: float
    ttft_error_p99_firm: bool  # enough samples for a p99
    itl_error_p50_s: float
    itl_error_p99_s: float
    slip_p50_s: float
    slip_p99_s: float
    us_per_event: float
    core_share: float
    honest: bool
    verified_rate: float  # the highest at which this machine's generator was honest; 0: none

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Raises KeyError, TypeError."""
        return cls(**{field.name: data[field.name] for field in fields(cls)})


COLUMNS = (
    "streams/s",
    "TTFT error p50 ms",
    "TTFT error p99 ms",
    "ITL error p50 ms",
    "ITL error p99 ms",
    "slip p50 ms",
    "slip p99 ms",
    "delivered / ideal",
    "CPU us/event",
    "share of a core",
    "honest",
)


def cells(check: SelfCheck) -> tuple[str, ...]:
    """One cell for each of COLUMNS. ~: a p99 of fewer samples than a p99 needs."""
    few = "" if check.ttft_error_p99_firm else "~"
    seconds = (check.itl_error_p50_s, check.itl_error_p99_s, check.slip_p50_s, check.slip_p99_s)
    return (
        f"{check.rate:g}",
        f"{check.ttft_error_p50_s * 1e3:.2f}",
        f"{few}{check.ttft_error_p99_s * 1e3:.2f}",
        *(f"{value * 1e3:.2f}" for value in seconds),
        f"{check.delivered:.2%}",
        f"{check.us_per_event:.0f}",
        f"{check.core_share:.0%}",
        "yes" if check.honest else "no",
    )


def limits() -> str:
    """What honest means."""
    return (
        f"honest: all answers complete, TTFT error p50 <= {MAX_TTFT_ERROR_P50_S * 1e3:g} ms and p99 <= "
        f"{MAX_TTFT_ERROR_P99_S * 1e3:g} ms, slip p99 <= {MAX_SLIP_P99_S * 1e3:g} ms, delivered >= {MIN_DELIVERED:.0%}. "
        "~: too few samples for a p99 (it needs 662)."
    )


def describe(check: SelfCheck | None) -> str:
    """One line for a report."""
    if check is None:
        return "the generator was not checked on this machine: run `toolkit bench --self-check`"
    day = time.strftime("%Y-%m-%d %H:%M", time.localtime(check.checked_at))
    return (
        f"the generator's own error on this machine ({day}, toolkit {check.versions['toolkit']}): TTFT p50 "
        f"{check.ttft_error_p50_s * 1e3:.2f} ms, p99 {check.ttft_error_p99_s * 1e3:.2f} ms at {check.rate:g}/s; "
        f"highest verified rate {check.verified_rate:g}/s"
    )


def versions() -> dict[str, str]:
    return {
        "toolkit": version("mm-serving-toolkit"),
        "python": platform.python_version(),
        "uvloop": version("uvloop"),
        "kernel": platform.release(),
    }


def cache_file(env: Mapping[str, str]) -> Path:
    """Where the last check of this machine is kept: below $XDG_CACHE_HOME, else ~/.cache; a home may be shared."""
    base = Path(env.get("XDG_CACHE_HOME", ""))
    folder = (base if base.is_absolute() else Path.home() / ".cache") / "mm-serving-toolkit"
    return folder / f"self-check-{platform.node() or 'unknown'}.json"


def keep(results: Sequence[SelfCheck], path: Path) -> SelfCheck:
    """Keep the best verified result, or the last when none was honest; what is kept is returned. Raises OSError.

    One rate alone that was honest says nothing against a higher one that was verified before: that one stays.
    """
    best = max((r for r in results if r.honest), key=lambda r: r.rate, default=results[-1])
    before = last_check(path)
    if len(results) == 1 and best.honest and before is not None and before.honest and before.rate > best.rate:
        return before
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(best.to_dict(), indent=2) + "\n", encoding="utf-8")
    temporary.replace(path)
    return best


def last_check(path: Path) -> SelfCheck | None:
    """What `keep` left; None where there is nothing readable, or other versions than these made it."""
    try:
        check = SelfCheck.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return check if check.versions == versions() else None
