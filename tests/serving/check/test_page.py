"""docs/checks.md is what the rules say."""

from serving.check.page import PAGE, checks_page
from serving.check.table import RULES


def test_the_page_is_up_to_date() -> None:
    """Run `python -m serving.check.page` after a change of the rules."""
    assert PAGE.read_text(encoding="utf-8") == checks_page()


def test_rules_have_names_of_their_own() -> None:
    """Scripts and suppressions name them."""
    names = [rule.id for rule in RULES]

    assert len(set(names)) == len(names)
    assert all(name == name.lower() and " " not in name for name in names)
