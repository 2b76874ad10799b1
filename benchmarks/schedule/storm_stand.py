"""The engines of the storm, real or simulated, and what befalls them: started, struck, ended."""

import json
import os
import stat
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.schedule.services import ROOT, Front, served
from serving.plan_process import below
from serving.service import EngineEndpoint, Service
from serving.supervisor import processes

HOOK = Path(__file__).parent / "storm_hook"


@dataclass(frozen=True)
class Stand:
    """The engines with their gateway. simulated: stand-ins compute nothing."""

    front: Front
    faults_file: Path
    simulated: bool

    @property
    def service(self) -> Service:
        return self.front.service

    @property
    def prefill(self) -> EngineEndpoint:
        return self.service.prefills[0]

    def fail(self, polls: float = 0.0, transfers: bool = False) -> None:
        """From now on: the probability with which a poll of a transfer fails, and whether transfers themselves fail."""
        if not self.simulated:
            self.faults_file.write_text(f"{polls} {int(transfers)}")
            time.sleep(0.2)  # until every process has read it
            return
        faults = {"poll_failure_rate": polls, "transfer_failure_rate": float(transfers)}
        request = urllib.request.Request(
            f"{self.prefill.url}/simulated/faults",
            json.dumps(faults).encode(),
            {"content-type": "application/json"},
        )
        urllib.request.urlopen(request, timeout=5).close()

    def signal_prefill(self, number: int) -> None:
        """SIGSTOP, SIGCONT: to prefill and all that it started."""
        rows = processes(self.front.run_dir)
        pid = next(int(one["pid"]) for one in rows if one["name"] == self.prefill.name)
        for each in (pid, *below(pid)):
            os.kill(each, number)


@contextmanager
def stand(work: Path, kind: str) -> Iterator[Stand]:
    """`toolkit serve` with one prefill and two decodes, all pairs in rotation, until the block ends."""
    faults = work / "faults"
    faults.write_text("0 0")
    chosen = [f"engine.kind={kind}", "engine.decode.count=2", "engine.ready_timeout_s=900"]
    if kind != "simulated":
        chosen.append(f"engine.python={_with_hook(work, faults)}")
    with served(work, chosen, pairs=2) as front:
        yield Stand(front, faults, kind == "simulated")


def _with_hook(work: Path, faults: Path) -> Path:
    """An interpreter of the engine environment in which the hook is at work."""
    python = work / "engine-python"
    python.write_text(
        f'#!/bin/sh\nexport STORM_FAULTS="{faults}" PYTHONPATH="$PYTHONPATH:{HOOK}"\n'
        f'exec "{ROOT}/.venv-engine/bin/python" "$@"\n'
    )
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    return python
