"""docs/samples.md and docs/profiles.md, made from the types: `python -m workloads.report.page [--check]`."""

import sys
from pathlib import Path

from workloads.profile_page import profiles_page
from workloads.record import FIELDS
from workloads.scrape import NAMES

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE, PROFILES = DOCS / "samples.md", DOCS / "profiles.md"


def samples_page() -> str:
    """The page's text."""
    rows = [f"| `{name}` | {meaning} |" for name, meaning in FIELDS.items()]
    return "\n".join(
        [
            "# What a load run writes",
            "",
            "Made from `workloads/record.py` and `workloads/scrape.py`. A run folder holds `plan.json` and `profile.toml`",
            "(what was asked), `samples.jsonl`, `metrics.jsonl`, `report.json` and `report.md`.",
            "",
            "Samples and pages are written while the run goes on: after a `kill -9` of it both files hold all that had ended by",
            "then, and there is no report. `toolkit workload replay RUN` asks the same again, to the byte.",
            "",
            "## samples.jsonl",
            "",
            "One line per attempt, in order of their ends: every planned request has one with `attempt` 0. Times are seconds",
            "after the run's start on one monotonic clock; keys stay, new ones may be added. What is refused, broken or unsent",
            "misses its SLO. Reports count first attempts; a client that came back after a Retry-After is told apart.",
            "",
            "| key | meaning |",
            "|---|---|",
            *rows,
            "",
            "## metrics.jsonl",
            "",
            '`{"at_s", "source", "values": {"name{labels}": value}}` per page of /metrics, on the same time axis, or',
            '`{"at_s", "source", "error"}`. `source`: `target`, an engine of the service that answers there, or a URL given',
            "with `--scrape`. Only these names are kept:",
            "",
            *(f"- `{name}`" for name in NAMES),
            "",
        ]
    )


PAGES = ((PAGE, samples_page), (PROFILES, profiles_page))


def main(arguments: list[str]) -> int:
    """Write the pages, or with --check say whether one differs; 1 when one does."""
    if "--check" in arguments:
        return int(
            any(not page.is_file() or page.read_text(encoding="utf-8") != text() for page, text in PAGES)
        )
    for page, text in PAGES:
        page.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
