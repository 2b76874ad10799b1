"""The one real service of a test run, shared by every test that asks for it; tests/conftest.py makes it known to all."""

from collections.abc import Iterator

import pytest

from tests.live.service import Running, end_group, free_port, start


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
