"""The cache of the tiny model, with a stand-in for the engine's Python."""

from pathlib import Path

import pytest

from serving.engines.tiny_model import cache_folder, ensure, folder
from toolkit.core.errors import EnvironmentFault


def fake_python(tmp_path: Path, body: str) -> str:
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(0o755)
    return str(script)


def test_the_folder_is_configured_or_the_users_cache() -> None:
    """A relative XDG_CACHE_HOME is to be ignored, says its standard."""
    home = Path.home()

    assert cache_folder(Path("/c"), {}) == Path("/c")
    assert cache_folder(None, {"XDG_CACHE_HOME": "/x"}) == Path("/x/mm-serving-toolkit")
    assert cache_folder(None, {"XDG_CACHE_HOME": "x"}) == home / ".cache" / "mm-serving-toolkit"
    assert cache_folder(None, {}) == home / ".cache" / "mm-serving-toolkit"


def test_it_is_built_once(tmp_path: Path) -> None:
    """The second time the folder is there, and nothing runs."""
    cache = tmp_path / "cache"
    built = ensure(cache, fake_python(tmp_path, 'echo once >> "$2/config.json"'))

    assert ensure(cache, "/no/such/python") == built == folder(cache)
    assert (built / "config.json").read_text() == "once\n"
    assert [path.name for path in cache.iterdir()] == [built.name]


def test_a_failed_build_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    """Half a model must never be served."""
    with pytest.raises(EnvironmentFault, match=r"(?s)exit 3.*no torch"):
        ensure(tmp_path / "cache", fake_python(tmp_path, 'touch "$2/half"; echo no torch >&2; exit 3'))

    assert list((tmp_path / "cache").iterdir()) == []


def test_another_builder_may_be_faster(tmp_path: Path) -> None:
    """The one that is there first stays, and the loser cleans up."""
    cache = tmp_path / "cache"
    first = f'mkdir -p "{folder(cache)}"; touch "{folder(cache)}/first"; touch "$2/second"'

    assert [path.name for path in ensure(cache, fake_python(tmp_path, first)).iterdir()] == ["first"]
    assert len(list(cache.iterdir())) == 1
