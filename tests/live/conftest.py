"""One real service for all live tests: 1 prefill + 2 decodes, started by `make serve` as a user would."""

from collections.abc import Iterator

import pytest

from tests.live.service import Running, end_group, free_port, start


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that kill or freeze come last, the one that ends the service at the very end."""

    def rank(item: pytest.Item) -> int:
        return 2 if item.get_closest_marker("ending") else 1 if item.get_closest_marker("killing") else 0

    items.sort(key=rank)


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
