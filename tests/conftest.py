"""What holds for every test: the same examples each run, and a CPU budget for those not marked slow."""

import time
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.live.running import image_port, running  # noqa: F401 - one service for tests/live and tests/conformance

settings.register_profile("fixed", derandomize=True, database=None, deadline=None)
settings.load_profile("fixed")

UNMARKED_CPU_S = 3.0
"""CPU seconds of a test without a mark, with room for a slow machine: the rule is 0.25 s. Keeps `make test` in its minutes."""

LONG_MARKS = frozenset({"slow", "engine", "proof"})
_over: list[tuple[str, float]] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    begun = time.process_time()
    try:
        return (yield)
    finally:
        spent = time.process_time() - begun
        if spent > UNMARKED_CPU_S and not LONG_MARKS & {mark.name for mark in item.iter_markers()}:
            _over.append((item.nodeid, spent))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for name, spent in _over:
        terminalreporter.write_line(
            f"OVER {UNMARKED_CPU_S} s of CPU without a `slow` mark: {name} ({spent:.1f} s)", red=True
        )


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if _over and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
