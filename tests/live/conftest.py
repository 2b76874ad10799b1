"""One real service for all live tests: 1 prefill + 2 decodes, started by `make serve` as a user would (running.py)."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that kill or freeze come last, the one that ends the service at the very end."""

    def rank(item: pytest.Item) -> int:
        return 2 if item.get_closest_marker("ending") else 1 if item.get_closest_marker("killing") else 0

    items.sort(key=rank)
