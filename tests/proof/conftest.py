"""The long rest (`make proof`). What it measures is written to benchmarks/results/proof.md, to be committed with the change."""

import platform
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.live.service import Running, end_group, free_port, start

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "proof.md"


class Results:
    """Figures by name, in the order they were measured."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str]] = []

    def add(self, what: str, value: str) -> None:
        self.rows.append((what, value))

    def write(self) -> None:
        cores, memory = psutil.cpu_count(), psutil.virtual_memory().total / 2**30
        lines = [
            "# What `make proof` measured",
            "",
            f"{time.strftime('%Y-%m-%d')}, {cores} cores, {memory:.0f} GiB, Python {platform.python_version()}, {platform.machine()}.",
            "",
            "| what | measured |",
            "|---|---|",
            *(f"| {what} | {value} |" for what, value in self.rows),
            "",
        ]
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        RESULTS.write_text("\n".join(lines))


@pytest.fixture(scope="session")
def results() -> Iterator[Results]:
    made = Results()
    yield made
    made.write()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, results: Results) -> Iterator[Running]:
    """A pair as README starts it."""
    settings = f"[gateway]\nport = {free_port()}\n"
    began = time.monotonic()
    made = start(tmp_path_factory.mktemp("proof"), settings, timeout_s=300)
    results.add("`make serve`, installed, to the ready message", f"{time.monotonic() - began:.0f} s")
    yield made
    end_group(made.process)
