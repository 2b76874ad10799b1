"""Old run folders go, within a number and a size, and nothing that a person made ever does."""

import os

import pytest

from workloads.folders import Quota, mark, own_folders, rotate


@pytest.fixture
def runs(tmp_path):
    """bench-0 (oldest) to bench-4, 1,000 bytes each."""
    for n in range(5):
        make(tmp_path, f"bench-{n}", n)
    return tmp_path


def make(runs, name, age):
    folder = runs / name
    folder.mkdir()
    mark(folder)
    (folder / "samples.jsonl").write_bytes(b"x" * 1000)
    os.utime(folder / ".toolkit-bench", (1000 + age, 1000 + age))
    return folder


def names(runs):
    return sorted(path.name for path in runs.iterdir())


def test_the_newest_are_kept(runs):
    """Age is when the run was made, not what its folder is called."""
    make(runs, "bench-a-new", 99)

    gone = rotate(runs, Quota(folders=3))

    assert names(runs) == ["bench-3", "bench-4", "bench-a-new"]
    assert [path.name for path in gone] == ["bench-2", "bench-1", "bench-0"]


def test_size_counts_too(runs):
    """2,500 bytes hold two folders of 1,000; no small old one stays behind a gap."""
    (runs / "bench-2" / "samples.jsonl").write_bytes(b"x" * 1400)
    (runs / "bench-0" / "samples.jsonl").write_bytes(b"")

    rotate(runs, Quota(size_bytes=2500))

    assert names(runs) == ["bench-3", "bench-4"]


def test_the_newest_stays_whatever_its_size(runs):
    """The run that was just made is never deleted."""
    rotate(runs, Quota(size_bytes=0))

    assert names(runs) == ["bench-4"]


def test_what_was_not_made_by_a_run_stays(runs, tmp_path):
    """No mark, another name, a note inside, a link, a folder inside: each keeps its folder."""
    (runs / "bench-0" / "notes.txt").write_text("mine")
    (runs / "bench-1" / "more").mkdir()
    (runs / "bench-2" / ".toolkit-bench").unlink()
    make(runs, "serve-1", 0)
    elsewhere = tmp_path.parent / f"{tmp_path.name}-elsewhere"
    elsewhere.mkdir()
    make(elsewhere, "bench-x", 0)
    (runs / "bench-link").symlink_to(elsewhere / "bench-x")
    (runs / "bench-file").write_text("mine")
    outside = elsewhere / "samples.jsonl"
    outside.write_text("mine")
    (runs / "bench-3" / "report.md").symlink_to(outside)

    assert rotate(runs, Quota(folders=1)) == ()

    assert names(runs) == [
        "bench-0",
        "bench-1",
        "bench-2",
        "bench-3",
        "bench-4",
        "bench-file",
        "bench-link",
        "serve-1",
    ]
    assert (elsewhere / "bench-x" / "samples.jsonl").exists() and outside.read_text() == "mine"
    assert [folder.path.name for folder in own_folders(runs)] == ["bench-4"]


def test_no_folder_of_runs_is_no_error(tmp_path):
    """The first run has nothing to rotate."""
    assert rotate(tmp_path / "none", Quota()) == ()
