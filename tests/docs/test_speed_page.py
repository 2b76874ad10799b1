"""The page on decoding speed says which bounds its own table keeps, whoever runs it next."""

from pathlib import Path

from benchmarks.access.speed_bounds import BOUNDS, verdict

PAGE = Path(__file__).parents[2] / "benchmarks/results/access-speed.md"


def test_the_verdict_above_the_table_is_that_of_the_table() -> None:
    """Not a note by hand, which the next run would drop."""
    text = PAGE.read_text(encoding="utf-8").partition("\n## ")[0]
    rows = [row for row in text.splitlines() if row.startswith("| ") and not row.startswith("| file")]

    assert "\n".join(verdict(rows)) in text


def test_each_bound_that_is_not_kept_is_told_with_its_figure() -> None:
    """And those that are kept are only counted."""
    rows = [
        f"| {file} JPEG, 1 MB | {method} | 9 | 0.1 | 0.2 | 1.0 | {mb} |  |"
        for file in ("48 MP", "12 MP", "1080p")
        for method, mb in (("fast", 41), ("portable", 10))
    ]

    first, *others = verdict(rows)
    assert first.startswith(f"{len(BOUNDS) - 1} of {len(BOUNDS)}")
    assert others == ["Not kept: 48 MP JPEG, fast: 41 MB, the bound is 40."]
