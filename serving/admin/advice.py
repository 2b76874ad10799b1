"""What `toolkit serve --check` would say of a change that is made while it runs. Pure."""

from serving.check.facts import Facts
from serving.check.rule import Severity
from serving.check.table import check
from serving.config import ServeConfig


def advice(before: ServeConfig, after: ServeConfig) -> list[str]:
    """Errors and warnings that the configuration had none of before; rules that must see the engines are left out."""
    if before == after:
        return []
    told = _told(before)
    return [line for key, line in _told(after).items() if key not in told]


def _told(config: ServeConfig) -> dict[tuple[str, tuple[str, ...]], str]:
    report = check(Facts(config, attached=True))
    return {
        (one.id, one.where): f"{one.id}: {', '.join(one.where)}: {one.what}. {one.why}"
        for one in report.findings
        if one.severity is not Severity.NOTE
    }
