"""The docs are what the code says."""

import re
from pathlib import Path

import pytest

from toolkit.core.docs import PAGES

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", PAGES)
def test_generated_pages_are_up_to_date(name):
    """Run `python -m toolkit.core.docs` after a change of the tables."""
    assert (ROOT / name).read_text() == PAGES[name]()


@pytest.mark.parametrize(
    "page", [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")], ids=lambda path: str(path.relative_to(ROOT))
)
def test_links_between_pages_resolve(page):
    """Every relative link names a file that is there."""
    targets = re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text())
    missing = [target for target in targets if "://" not in target and not (page.parent / target).exists()]

    assert missing == []


def test_the_architecture_page_names_files_that_exist():
    """One line per module: none of them a memory."""
    named = re.findall(r"^\| `([\w/.]+)` \|", (ROOT / "docs/architecture.md").read_text(), re.MULTILINE)

    assert len(named) > 20
    assert [name for name in named if not (ROOT / name).exists()] == []
