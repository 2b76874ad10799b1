"""What a shell is told to be, and what it tells back: the words between launch.py and shell.py."""

import json
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from workloads.locust.task import Task
from workloads.shape import Stretch

Role = Literal["local", "master", "worker"]


@dataclass(frozen=True, slots=True)
class Brief:
    """One shell. web_port: None, no web UI; 0, any free one.

    bind: where the web UI listens. host, port: where the master listens, or where the worker finds it.
    plan, profile: files to read. stretches: the intended rate over time.
    out: folder of the first run, OUT-2 of the second; "", runs/bench-DATE-TIME.
    """

    role: Role
    bind: str = "127.0.0.1"
    web_port: int | None = None
    host: str = "127.0.0.1"
    port: int = 5557
    expect_workers: int = 1
    plan: str = ""
    profile: str = ""
    stretches: tuple[Stretch, ...] = ()
    task: Task = field(default_factory=lambda: Task("", ""))
    out: str = ""
    runs_dir: str = "runs"
    log_level: str = "WARNING"

    def folder(self, number: int) -> Path:
        """The folder of the n-th run, from 1."""
        if self.out:
            return Path(self.out if number == 1 else f"{self.out}-{number}")
        return Path(self.runs_dir) / f"bench-{datetime.now().astimezone():%Y%m%d-%H%M%S}"

    def to_json(self) -> bytes:
        """One line."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_json(cls, line: bytes) -> "Brief":
        """The inverse of `to_json`."""
        fields: dict[str, Any] = json.loads(line)
        fields["task"] = Task(**fields["task"])
        fields["stretches"] = tuple(Stretch(**piece) for piece in fields["stretches"])
        return cls(**fields)
