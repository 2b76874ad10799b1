"""Two real processes on the real Mooncake TransferEngine; no SGLang is started."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from serving.topology import ENGINE_PYTHON, ROOT
from serving.transfer_plan import plan
from serving.transfer_run import TransferFailed, run

pytestmark = pytest.mark.engine

PYTHON = str(ROOT / ENGINE_PYTHON)


def asked(**changes):
    return plan(
        "4K,1M", "1,4", "tcp", (), **{"seconds": 0.2, "buffer_bytes": 16 << 20, "stall_s": 10.0, **changes}
    )


def alive(pid):
    """Whether it runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def disturbed(tmp_path, number, role, **changes):
    """Send `role` the signal once the first size is measured; the error, the agents' ids and the seconds to the end."""
    agents = {}
    measured = []

    def heard(cell):
        measured.append(cell)
        if len(measured) == 2:
            os.kill(agents[role], number)

    async def go():
        with pytest.raises(TransferFailed) as failed:
            await run(
                asked(**changes),
                PYTHON,
                tmp_path,
                "",
                heard,
                lambda agent: agents.update({agent.role: agent.pid}),
            )
        return failed.value

    begun = time.monotonic()
    return asyncio.run(go()), agents, time.monotonic() - begun


def test_bytes_arrive_and_are_measured(tmp_path):
    """Every size and batch has transfers, a rate and CPU time at both ends; the checksums agreed, or it would raise."""
    report = asyncio.run(run(asked(streams=2), PYTHON, tmp_path))

    assert [(cell.size_bytes, cell.batch) for cell in report.cells] == [
        (4096, 1), (1 << 20, 1), (4096, 4), (1 << 20, 4),
    ]  # fmt: skip
    assert all(cell.transfers >= 2 and cell.bytes_per_s > 0 for cell in report.cells)
    assert sum(cell.cpu_initiator_s for cell in report.cells) > 0
    assert sum(cell.cpu_target_s for cell in report.cells) > 0
    assert report.mooncake.startswith("mooncake-transfer-engine")


def test_a_killed_initiator_leaves_no_target_behind(tmp_path):
    error, agents, _ = disturbed(tmp_path, signal.SIGKILL, "initiator")

    assert error.kind == "ended" and "signal 9" in error.message
    assert not any(alive(pid) for pid in agents.values())


@pytest.mark.parametrize("role", ["target", "initiator"])
def test_a_frozen_end_is_a_typed_error_within_the_deadline_and_is_gone(tmp_path, role):
    """SIGSTOP: connections stay open, nothing answers, as with a hung machine."""
    error, agents, took = disturbed(tmp_path, signal.SIGSTOP, role, stall_s=1.0)

    assert error.kind in ("stalled", "transfer", "peer")
    assert took < 30
    assert not any(alive(pid) for pid in agents.values())


def test_a_killed_target_is_a_typed_error(tmp_path):
    error, agents, _ = disturbed(tmp_path, signal.SIGKILL, "target", stall_s=2.0)

    assert error.kind in ("transfer", "peer", "stalled")
    assert not any(alive(pid) for pid in agents.values())
