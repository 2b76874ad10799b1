"""docs/profiles.md says every key of a profile, and its examples are profiles."""

import pytest

from workloads.compose import compose
from workloads.profile import load_profile
from workloads.profile_page import EXAMPLES, profiles_page, sections
from workloads.report.page import PROFILES
from workloads.traces.catalog import REQUEST_TRACES, read_trace


def test_the_page_is_what_the_code_says():
    """Run `python -m workloads.report.page` after a change of a profile's keys."""
    assert PROFILES.read_text(encoding="utf-8") == profiles_page()


@pytest.mark.parametrize("title", EXAMPLES)
def test_every_example_is_a_profile(title, tmp_path):
    """Copied from the page it loads, and asks something within its window."""
    path = tmp_path / "mine.toml"
    path.write_text(EXAMPLES[title], encoding="utf-8")

    profile = load_profile(str(path), {"duration_s": 5.0})

    assert compose(profile).requests
    assert f"## {title}" in profiles_page()


def test_the_page_names_the_built_in_traces():
    """Those that can be replayed, and no folder of clients."""
    assert all(next(read_trace(name)).at_s == 0 for name in REQUEST_TRACES)
    assert all(name in EXAMPLES["Replay a trace"] for name in REQUEST_TRACES)


def test_every_key_has_a_row():
    """Whatever a table of the profile takes is on the page."""
    page = profiles_page()

    for path, model in sections():
        assert not path or f"[{path}]" in page
        values = [name for name in model.model_fields if path or name not in {p for p, _ in sections()}]
        assert all(f"| `{name}` |" in page for name in values if name not in {"classes", "slo"})
