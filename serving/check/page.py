"""docs/checks.md: `python -m serving.check.page [--check]` writes it from the table of rules, or compares it."""

import sys
from pathlib import Path

from serving.check.rule import Rule, Severity
from serving.check.table import ELSEWHERE, GROUPS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "checks.md"


def checks_page() -> str:
    """The page's text."""
    return "\n".join(
        [
            "# What `toolkit serve --check` looks for",
            "",
            "Made from the rules in `serving/check/`. For each a test holds a configuration on which it fires, writes the fix that the",
            "rule itself tells, and sees it silent; the SGLang lines (0.5.23) are compared with the installed files.",
            "",
            "```",
            "toolkit serve --config serve.toml --check          # starts nothing; exit code 1 when there is an error",
            "toolkit serve --config serve.toml --check --json   # version, worst, findings, together, unchecked, rules",
            "```",
            "",
            "An **error** is refused by `toolkit serve` too, before anything is started (`--no-check` starts all the same); a **warning** is",
            "one line there. Fixes are lines for serve.toml or `--set`, and for the shell; what is told at the end does all of them at once.",
            "",
            *(line for name, rules in GROUPS for line in _group(name, rules)),
            "## What is told elsewhere",
            "",
            "| mistake | told by |",
            "|---|---|",
            *(f"| {what} | {where} |" for what, where in ELSEWHERE),
            "",
            "Engines that run already are asked `GET /server_info` for the command line that they were started with; rules that read",
            "the environment say nothing of those. A rule that needs what is not here (SGLang's argument table, the model's files)",
            "says that it could not look.",
            "",
        ]
    )


def _group(name: str, rules: tuple[Rule, ...]) -> list[str]:
    return [
        f"## {name}",
        "",
        "| rule | | finds | because | see |",
        "|---|---|---|---|---|",
        *map(_row, rules),
        "",
    ]


def _row(rule: Rule) -> str:
    grave = f"**{rule.severity}**" if rule.severity is Severity.ERROR else str(rule.severity)
    sources = "<br>".join(f"`{source}`" for source in rule.sources)
    return f"| `{rule.id}` | {grave} | {rule.finds} | {rule.why} | {sources} |"


def main(arguments: list[str]) -> int:
    """Write the page, or with --check say whether it differs; 1 when it does."""
    if "--check" in arguments:
        return 0 if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == checks_page() else 1
    PAGE.write_text(checks_page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
