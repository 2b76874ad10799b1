"""Reference pages made from the code: `python -m toolkit.core.docs [--check]` writes or compares them."""

import sys
from pathlib import Path

from toolkit.core.errors import CODES
from toolkit.core.names import METRICS

ROOT = Path(__file__).resolve().parents[2]


def errors_page() -> str:
    """docs/errors.md."""
    rows = [
        f"| `{code.code}` | {code.status} | `{code.kind}` | {'yes' if code.retryable else 'no'} | {code.action} |"
        for code in CODES.values()
    ]
    return "\n".join(
        [
            "# Errors",
            "",
            "Made from `toolkit/core/errors.py`. Every error has the OpenAI shape:",
            '`{"error": {"message", "type", "param", "code", "action", "request_id"}}`; a 504 and `queue_too_long` add `hop`, the part of the',
            "path in which the time ended, and `spent_ms`, the time by hop. `action` says what to do: as below, or what fits the case",
            "better. Once a stream has begun its status is spent: a failure is then the last event,",
            '`data: {"error": ...}`, never followed by `[DONE]`.',
            "",
            "| code | status | type | same request may succeed later | what to do |",
            "|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def metrics_page() -> str:
    """docs/metrics.md."""
    rows = [
        f"| `{metric.name}` | {metric.kind} | {metric.unit} | {', '.join(metric.labels) or '-'} | {metric.help} |"
        for metric in METRICS
    ]
    return "\n".join(
        [
            "# Metrics of the gateway",
            "",
            "Made from `toolkit/core/names.py`; served at `GET /metrics`. The engines export SGLang's own `sglang:*` at",
            "their own `/metrics`.",
            "",
            "| name | kind | unit | labels | meaning |",
            "|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


PAGES = {"docs/errors.md": errors_page, "docs/metrics.md": metrics_page}


def main(arguments: list[str]) -> int:
    """Write the pages, or with --check name those that differ; 1 when any does."""
    stale = [
        name
        for name, page in PAGES.items()
        if not (ROOT / name).is_file() or (ROOT / name).read_text() != page()
    ]
    if "--check" in arguments:
        for name in stale:
            print(f"{name} is not what the code says; run `python -m toolkit.core.docs`.")
        return 1 if stale else 0
    for name in stale:
        (ROOT / name).write_text(PAGES[name]())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
