"""An entry is whole under its name or not there; what a dead gateway left is taken over by the next."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from serving.storage.entries import image_name, result_name
from serving.storage.spool import PARTIAL, Spool
from toolkit.core.errors import EnvironmentFault

NAME = image_name(b"\1" * 32, "png")
OTHER = result_name("req-1", 0.0)


def test_an_entry_is_written_whole_for_its_owner_alone(tmp_path: Path) -> None:
    spool = Spool.take(tmp_path, "s3://b")

    spool.write(NAME, b"pixels")

    file = spool.path(NAME)
    assert file.read_bytes() == b"pixels"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(spool.folder.stat().st_mode) == 0o700
    assert [(found.name, found.size) for found, _ in spool.left()] == [(NAME, 6)]
    spool.close()


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    spool = Spool.take(tmp_path, "s3://b")
    spool.path(NAME).mkdir()  # the rename will fail

    with pytest.raises(OSError, match="directory"):
        spool.write(NAME, b"pixels")

    assert not list(spool.folder.glob(f"*{PARTIAL}"))
    spool.close()


def test_what_was_half_written_is_gone_at_the_next_start(tmp_path: Path) -> None:
    first = Spool.take(tmp_path, "s3://b")
    (first.folder / (NAME + PARTIAL)).write_bytes(b"pix")
    first.close()

    second = Spool.take(tmp_path, "s3://b")

    assert second.left() == []
    assert not list(second.folder.glob(f"*{PARTIAL}"))
    second.close()


def test_two_gateways_have_a_slot_each_and_neither_takes_from_the_other(tmp_path: Path) -> None:
    first, second = Spool.take(tmp_path, "s3://b"), Spool.take(tmp_path, "s3://b")
    first.write(NAME, b"1")

    assert first.folder != second.folder
    assert second.adopt() == []
    first.close()
    assert [found.name for found, _ in second.adopt()] == [NAME]
    assert second.path(NAME).read_bytes() == b"1"
    second.close()


def test_one_stores_entries_never_reach_another(tmp_path: Path) -> None:
    first = Spool.take(tmp_path, "s3://one")
    first.write(NAME, b"1")
    first.close()

    second = Spool.take(tmp_path, "s3://two")

    assert second.left() == second.adopt() == []
    second.close()


HOLD = """
import signal, sys
from pathlib import Path
from serving.storage.spool import PARTIAL, Spool

root, name, other = sys.argv[1:]
spool = Spool.take(Path(root), "s3://b")
spool.write(name, b"1")
spool.write(other, b"22")
(spool.folder / ("image.x" + PARTIAL)).write_bytes(b"half")
print("ready", flush=True)
signal.pause()
"""


def test_a_killed_gateways_slot_is_free_at_once_with_all_it_had_accepted(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path), NAME, OTHER]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.kill()

    spool = Spool.take(tmp_path, "s3://b")

    assert spool.folder.name == "0"
    assert sorted(found.name for found, _ in spool.left()) == [NAME, OTHER]
    spool.close()


def test_a_folder_that_cannot_be_made_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(EnvironmentFault, match=r"storage\.spool_dir"):
        Spool.take(tmp_path / "file", "s3://b")
