"""Against a real S3 server: what was accepted arrives, whatever happens to the server or to us meanwhile."""

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path

import obstore
import pytest

from tests.serving.storage.kept import (
    Counted,
    body,
    config,
    image_key,
    kept,
    keys,
    picture,
    until,
)
from tests.serving.storage.weed import BUCKET, KEY, Weed

pytestmark = pytest.mark.slow
PICTURES = [picture(number, 200_000) for number in range(40)]
ALL = sorted(image_key(digest) for digest, _ in PICTURES)
RESULTS = [f"results/1970/01/01/req-{digest.hex()[:8]}.json" for digest, _ in PICTURES]


def same(weed: Weed, prefix: str) -> bool:
    store = weed.store(prefix)
    return all(body(store, image_key(digest)) == data for digest, data in PICTURES)


def test_bytes_and_content_type_come_back_as_they_went(weed: Weed, tmp_path: Path) -> None:
    async def run() -> None:
        settings = config(f"s3://{BUCKET}/plain", tmp_path, endpoint=weed.endpoint)
        digest, data = picture(1, 12_000_000)
        async with kept(settings) as storage:
            storage.image(digest, data, "JPEG")
            storage.result("req-1", 1_700_000_000.0, 20, lambda: b'{"answer": "yes"}')

        store = weed.store("plain")
        found = obstore.get(store, image_key(digest))
        assert bytes(found.bytes()) == data
        assert found.attributes["Content-Type"] == "image/jpeg"
        assert body(store, "results/2023/11/14/req-1.json") == b'{"answer": "yes"}'

    asyncio.run(run())


def test_a_clean_stop_ends_with_everything_in_the_store(weed: Weed, tmp_path: Path) -> None:
    async def run() -> None:
        counted = Counted()
        async with kept(config(f"s3://{BUCKET}/stop", tmp_path, endpoint=weed.endpoint), counted) as storage:
            for digest, data in PICTURES:
                storage.image(digest, data, "png")

        assert storage.left == 0
        assert counted.events["uploads_total image uploaded"] == len(PICTURES)
        assert keys(weed.store("stop")) == ALL
        assert same(weed, "stop")
        assert not list(tmp_path.rglob("image.*"))

    asyncio.run(run())


def test_kill_9_of_the_server_in_mid_upload_loses_nothing(weed: Weed, tmp_path: Path) -> None:
    async def run() -> None:
        counted = Counted()
        settings = config(f"s3://{BUCKET}/killed", tmp_path, endpoint=weed.endpoint, timeout_s=5)
        async with kept(settings, counted) as storage:
            for digest, data in PICTURES:
                storage.image(digest, data, "png")
            await until(lambda: counted.events["uploads_total image uploaded"] >= 5)
            weed.kill()
            try:
                await until(lambda: counted.events["uploads_total image failed"] >= 1)
                storage.show()
                assert counted.gauges["up"] == 0
                assert 0 < storage.left < len(PICTURES)
            finally:
                await asyncio.to_thread(weed.start)
            await until(lambda: not storage.left, 60)
            storage.show()

        assert counted.gauges == {"up": 1, "spool_bytes": 0, "spool_entries": 0, "spool_oldest_seconds": 0}
        assert same(weed, "killed")

    asyncio.run(run())


def test_a_store_that_hangs_holds_up_neither_hand_overs_nor_the_stop(weed: Weed, tmp_path: Path) -> None:
    async def run() -> None:
        settings = config(
            f"s3://{BUCKET}/hung", tmp_path, endpoint=weed.endpoint, timeout_s=60, drain_timeout_s=0.5
        )
        weed.freeze()
        try:
            async with kept(settings) as storage:
                for digest, data in PICTURES:
                    storage.image(digest, data, "png")
                begun = time.monotonic()
            assert time.monotonic() - begun < 5  # a limit that is set: drain_timeout_s
            assert storage.left == len(PICTURES)
        finally:
            weed.thaw()

        async with kept(config(f"s3://{BUCKET}/hung", tmp_path, endpoint=weed.endpoint)):
            pass
        assert same(weed, "hung")

    asyncio.run(run())


def test_a_store_that_is_away_at_the_start_is_a_warning(
    weed: Weed, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        counted = Counted()
        settings = config(
            f"s3://{BUCKET}/x", tmp_path, endpoint="http://127.0.0.1:1", timeout_s=2, drain_timeout_s=0.1
        )
        async with kept(settings, counted) as storage:
            await until(lambda: "Connection refused" in caplog.text)
            storage.show()

        assert counted.gauges["up"] == 0

    asyncio.run(run())


def test_a_wrong_secret_is_told_and_not_shown(
    weed: Weed, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        keyfile = tmp_path / "keys.toml"
        keyfile.write_text(f'AWS_ACCESS_KEY_ID = "{KEY}"\nAWS_SECRET_ACCESS_KEY = "hush-hush"\n')
        settings = config(
            f"s3://{BUCKET}/x",
            tmp_path,
            endpoint=weed.endpoint,
            credentials_file=str(keyfile),
            drain_timeout_s=0.1,
        )
        async with kept(settings) as storage:
            storage.image(*picture(1), "png")
            await until(lambda: "403" in caplog.text)

        assert "hush" not in caplog.text

    asyncio.run(run())


GATEWAY = """
import asyncio, sys
from pathlib import Path
from tests.serving.storage.kept import config, kept
from tests.serving.storage.test_s3 import PICTURES

async def main(url, spool, endpoint):
    async with kept(config(url, Path(spool), endpoint=endpoint)) as storage:
        for digest, data in PICTURES:
            storage.image(digest, data, "png")
            storage.result(f"req-{digest.hex()[:8]}", 0.0, 10, lambda: b"{}")
        print("handed over", flush=True)
        await asyncio.sleep(3600)

asyncio.run(main(*sys.argv[1:]))
"""


def accepted(spool: Path) -> int:
    return len([path for path in spool.glob("*/*/*.*") if path.suffix != ".part"])


def test_kill_9_of_ours_loses_nothing_that_was_written(weed: Weed, tmp_path: Path) -> None:
    """The server stands still, so that all is in the spool; then it goes on and another gateway starts."""
    weed.freeze()
    try:
        command = [sys.executable, "-c", GATEWAY, f"s3://{BUCKET}/ours", str(tmp_path), weed.endpoint]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"handed over\n"
            deadline = time.monotonic() + 30
            while accepted(tmp_path) < 2 * len(PICTURES):
                assert time.monotonic() < deadline
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
    finally:
        weed.thaw()

    async def run() -> None:
        async with kept(config(f"s3://{BUCKET}/ours", tmp_path, endpoint=weed.endpoint)):
            pass

    asyncio.run(run())
    assert same(weed, "ours")
    assert all(body(weed.store("ours"), key) == b"{}" for key in RESULTS)


STOPPING = """
import asyncio, sys, time
from pathlib import Path
from tests.serving.storage.kept import config, kept
from tests.serving.storage.test_s3 import PICTURES

async def main(url, spool, endpoint):
    async with kept(config(url, Path(spool), endpoint=endpoint, drain_timeout_s=0.3)) as storage:
        for digest, data in PICTURES:
            storage.image(digest, data, "png")

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("hung", [False, True])
def test_the_process_ends_in_order_while_uploads_run(weed: Weed, tmp_path: Path, hung: bool) -> None:
    """An exit status of 134 would be the library's threads, answering into an interpreter that goes down."""
    command = [sys.executable, "-c", STOPPING, f"s3://{BUCKET}/end", str(tmp_path), weed.endpoint]
    if hung:
        weed.freeze()
    try:
        for _ in range(3):
            done = subprocess.run(command, capture_output=True, timeout=30, check=False)
            assert (done.returncode, done.stdout, b"panicked" in done.stderr) == (0, b"", False)
    finally:
        weed.thaw()
