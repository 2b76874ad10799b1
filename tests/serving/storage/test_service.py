"""A whole service over a real S3 server: the gateway's kill -9 and a clean stop lose nothing that a client was answered for."""

import base64
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import obstore
import pytest

from tests.serving.access import pictures
from tests.serving.storage.kept import image_key
from tests.serving.storage.weed import BUCKET, KEY, SECRET, Weed

pytestmark = pytest.mark.slow


def file(number: int) -> bytes:
    """A picture that no other number has."""
    return pictures.saved(pictures.photo(200 + number, 133), "PNG")


def question(number: int) -> dict[str, Any]:
    uri = f"data:image/png;base64,{base64.b64encode(file(number)).decode()}"
    parts = [{"type": "text", "text": "what is it?"}, {"type": "image_url", "image_url": {"url": uri}}]
    return {"messages": [{"role": "user", "content": parts}], "max_tokens": 2, "stream": True}


def there(store: Any, key: str) -> bool:
    try:
        return bool(obstore.head(store, key)["size"])
    except FileNotFoundError:
        return False


def until(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", timeout=2).status_code == 200
    except httpx.TransportError:
        return False


def spooled(runs: Path) -> list[Path]:
    return [path for path in (runs / "spool").glob("*/*/*.*") if path.suffix != ".part"]


def gateway_pid(runs: Path) -> int:
    rows = json.loads((runs / "latest" / "processes.json").read_text())
    return next(int(row["pid"]) for row in rows if row["name"] == "gateway")


def test_what_was_answered_is_stored_through_kill_9_and_a_clean_stop(weed: Weed, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    settings = [
        "engine.kind=simulated", f"runs_dir={runs}", f"storage.url=s3://{BUCKET}/service", f"storage.endpoint={weed.endpoint}",
        "storage.images=true", "storage.results=true", "storage.timeout_s=5", "storage.drain_timeout_s=4", "supervisor.backoff_s=0.2",
    ]  # fmt: skip
    chosen = [word for setting in settings for word in ("--set", setting)]
    argv = [sys.executable, "-c", "from toolkit.cli import main; main()", "serve", "--json", "--port", "0", *chosen]  # fmt: skip
    environment = {**os.environ, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
    store = weed.store("service")
    wanted: list[str] = []

    def missing() -> list[str]:
        return [key for key in wanted if not there(store, key)]

    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        try:
            service = next(
                event for event in map(json.loads, process.stdout) if event["event"] == "service_ready"
            )
            url = service["url"]
            with httpx.Client(timeout=30) as client:

                def ask(number: int) -> None:
                    day = f"{datetime.now(UTC):%Y/%m/%d}"
                    answer = client.post(f"{url}/v1/chat/completions", json=question(number))
                    assert answer.status_code == 200
                    assert "[DONE]" in answer.text
                    wanted.append(image_key(hashlib.sha256(file(number)).digest()))
                    wanted.append(f"results/{day}/{answer.headers['x-request-id']}.json")

                for number in range(5):
                    ask(number)
                until(lambda: not missing() and not spooled(runs))
                weed.freeze()
                for number in range(5, 10):
                    ask(number)
                until(lambda: len(spooled(runs)) == 2 * 5)
                first = gateway_pid(runs)
                os.kill(first, signal.SIGKILL)
                weed.thaw()
                until(lambda: gateway_pid(runs) not in (0, first) and ready(url))
                until(lambda: not missing())
                for number in range(10, 15):
                    ask(number)
        finally:
            weed.thaw()
            process.send_signal(signal.SIGINT)
            rest = process.stdout.read().decode()
            process.wait(30)

    assert process.returncode == 0
    assert "killed" not in "".join(line for line in rest.splitlines() if "gateway" in line)
    assert missing() == []
    assert spooled(runs) == []
    written = "".join(path.read_text() for path in runs.rglob("*") if path.suffix in (".log", ".json"))
    assert SECRET not in written
