"""What is handed over reaches the store whole, once, and never holds up the one who handed it over."""

import asyncio
import logging
import os
import threading
import time
from pathlib import Path

import pytest
from obstore.store import LocalStore

from serving.config import MB
from serving.storage.backlog import MEMORY_BYTES
from serving.storage.spool import Spool
from serving.storage.sweep import DAY_S
from tests.serving.storage.kept import Counted, body, config, image_key, kept, keys, picture, until


def test_an_image_is_stored_as_it_came_and_once_however_often_it_comes(tmp_path: Path) -> None:
    async def run() -> None:
        counted = Counted()
        digest, data = picture(1)
        async with kept(config(f"file://{tmp_path}/store", tmp_path / "spool"), counted) as storage:
            for _ in range(3):
                storage.image(digest, data, "JPEG")
            await until(lambda: not storage.left)
            storage.image(digest, data, "JPEG")
        async with kept(config(f"file://{tmp_path}/store", tmp_path / "spool"), counted) as storage:
            storage.image(digest, data, "JPEG")

        store = LocalStore(tmp_path / "store")
        assert keys(store) == [image_key(digest)]
        assert body(store, image_key(digest)) == data
        assert counted.events == {
            "uploads_total image uploaded": 1,
            "upload_bytes_total image": len(data),
            "uploads_total image exists": 1,
            "upload_seconds image": 2,
        }

    asyncio.run(run())


def test_a_result_is_made_on_a_thread_and_lies_under_its_day(tmp_path: Path) -> None:
    async def run() -> None:
        async with kept(config(f"file://{tmp_path}/store", tmp_path / "spool")) as storage:
            storage.result("req-1", 1_700_000_000.0, 10, lambda: b'{"a": 1}')

        store = LocalStore(tmp_path / "store")
        assert body(store, "results/2023/11/14/req-1.json") == b'{"a": 1}'

    asyncio.run(run())


@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_a_folder_store_is_for_its_owner_alone_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    """What a process without this rule had left open is closed as it is used again."""
    (tmp_path / "store" / "images").mkdir(parents=True, mode=0o755)

    async def run() -> None:
        async with kept(config(f"file://{tmp_path}/store", tmp_path / "spool")) as storage:
            storage.image(*picture(1), "png")
            storage.result("req-1", 1_700_000_000.0, 10, lambda: b"{}")

    before = os.umask(umask)
    try:
        asyncio.run(run())
    finally:
        os.umask(before)

    found = {path: path.stat().st_mode & 0o777 for path in (tmp_path / "store").rglob("*")}
    assert len(found) == 8
    assert all(mode == (0o700 if path.is_dir() else 0o600) for path, mode in found.items())


def test_only_what_was_asked_for_is_stored(tmp_path: Path) -> None:
    async def run() -> None:
        digest, data = picture(1)
        settings = config(f"file://{tmp_path}/store", tmp_path / "spool", results=False)
        async with kept(settings) as storage:
            storage.image(digest, data, "png")
            storage.result("req-1", 0.0, 10, lambda: b"{}")

        assert keys(LocalStore(tmp_path / "store")) == [image_key(digest)]

    asyncio.run(run())


def test_a_result_that_cannot_be_made_is_counted_and_harms_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        counted = Counted()
        digest, data = picture(1)
        async with kept(config(f"file://{tmp_path}/store", tmp_path / "spool"), counted) as storage:
            storage.result("req-1", 0.0, 10, lambda: b"" + None)  # type: ignore[operator]
            storage.image(digest, data, "png")

        assert counted.events["dropped_total result disk_failed"] == 1
        assert keys(LocalStore(tmp_path / "store")) == [image_key(digest)]

    asyncio.run(run())


def test_a_full_spool_drops_counts_and_says_so_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        counted = Counted()
        settings = config(f"file://{tmp_path}/store", tmp_path / "spool", spool_mb=1)
        async with kept(settings, counted, started=False) as storage:  # nothing leaves the spool
            for number in range(4):
                storage.image(*picture(number, 400_000), "png")
            storage.show()

        assert counted.events == {"dropped_total image spool_full": 2}
        assert (counted.gauges["spool_bytes"], counted.gauges["spool_entries"]) == (800_000, 2)
        assert [r.levelname for r in caplog.records if "spool_full" in r.message] == ["ERROR"]
        assert "2 entries (0.8 MB) are not in the store yet" in caplog.text

        async with kept(settings, counted):
            pass
        assert counted.events["uploads_total image uploaded"] == 2

    with caplog.at_level(logging.INFO, "toolkit.storage"):
        asyncio.run(run())
    assert "2 entries of earlier gateways are taken over" in caplog.text


def test_a_disk_that_fails_is_counted_and_answers_go_on(tmp_path: Path) -> None:
    async def run() -> None:
        counted = Counted()
        async with kept(config(f"file://{tmp_path}/store", tmp_path / "spool"), counted) as storage:
            digest, data = picture(1)
            (next((tmp_path / "spool").glob("*/0")) / f"image.{digest.hex()}.png").mkdir()
            storage.image(digest, data, "png")
            await until(lambda: not storage.left)

        assert counted.events == {"dropped_total image disk_failed": 1}

    asyncio.run(run())


def test_a_disk_that_stands_still_holds_up_no_hand_over_and_takes_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files are references until the thread writes them, and those it has not written are bounded."""
    moves, wrote = threading.Event(), Spool.write
    given: list[bytes] = []

    def write(spool: Spool, name: str, data: bytes) -> None:
        assert moves.wait(30)
        given.append(data)
        wrote(spool, name, data)

    async def run() -> None:
        counted = Counted()
        files = [picture(number, 5 * MB) for number in range(8)]
        async with kept(config(f"file://{tmp_path}/store", tmp_path / "spool"), counted) as storage:
            for digest, data in files:
                storage.image(digest, data, "png")

            assert given == []
            assert storage.left == MEMORY_BYTES // (5 * MB) == 6
            assert counted.events == {"dropped_total image disk_behind": 2}
            moves.set()

        assert all(one is data for one, (_, data) in zip(given, files, strict=False))
        assert len(keys(LocalStore(tmp_path / "store"))) == 6

    monkeypatch.setattr(Spool, "write", write)
    asyncio.run(run())


def test_images_older_than_half_their_retention_are_written_anew_and_leftovers_past_it_are_not(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        counted = Counted()
        settings = config(f"file://{tmp_path}/store", tmp_path / "spool", retention_days=10)
        (young, a), (old, b), (late, c) = picture(1), picture(2), picture(3)
        async with kept(settings, counted) as storage:
            storage.image(young, a, "png")
            storage.image(old, b, "png")
        at = time.time() - 6 * DAY_S
        os.utime(tmp_path / "store" / image_key(old), (at, at))
        async with kept(settings, counted, started=False) as storage:
            storage.image(late, c, "png")
        (left,) = (tmp_path / "spool").glob("*/0/image.*")
        os.utime(left, (time.time() - 11 * DAY_S,) * 2)
        counted.events.clear()

        async with kept(settings, counted) as storage:
            storage.image(young, a, "png")
            storage.image(old, b, "png")

        assert counted.events["uploads_total image exists"] == 1
        assert counted.events["uploads_total image uploaded"] == 1
        assert counted.events["dropped_total image expired"] == 1
        assert keys(LocalStore(tmp_path / "store")) == sorted([image_key(young), image_key(old)])
        assert not left.exists()

    asyncio.run(run())
