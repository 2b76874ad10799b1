"""The one real service of a test run, shared by every test that asks for it; tests/conftest.py makes it known to all."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.live.service import Running, end_group, free_port, start
from toolkit.core.journal import read


@pytest.fixture(scope="session")
def image_port() -> int:
    """Where the tests' own image server listens; allow-listed in the service."""
    return free_port()


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory, image_port: int) -> Iterator[Running]:
    settings = f"""
[engine]
decode = {{ count = 2 }}
[gateway]
port = {free_port()}
health_interval_s = 0.5
[access]
allowed_hosts = ["127.0.0.1:{image_port}"]
[supervisor]
backoff_s = 0.2
"""
    made = start(tmp_path_factory.mktemp("live"), settings, timeout_s=300)
    yield made
    end_group(made.process)
    wrong = counted_wrong(records(made))
    assert wrong == [], f"prompts counted otherwise than by the engine (ours, its): {wrong}"


def records(made: Running) -> list[dict[str, Any]]:
    """What the journal holds so far."""
    return list(read(made.run_dir / "journal" / "requests.jsonl"))


def counted_wrong(found: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    """Requests whose exact count (second) is not what the engine reported (third)."""
    return [
        (record["request_id"], mine, record["prompt_tokens"])
        for record in found
        if record["tokens_counted"]
        and record["prompt_tokens"] is not None
        and (mine := record["text_tokens_estimated"] + record["image_tokens_estimated"])
        != record["prompt_tokens"]
    ]
