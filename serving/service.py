"""A running service as a file: the effective configuration and where every engine answers.

`toolkit serve` writes it into the run folder (service.json); the gateway process, `toolkit request` and
`toolkit bench` read it. Nothing else is shared between those processes.
"""

from pathlib import Path
from typing import Literal

from pydantic import Field

from serving.config import ServeConfig
from toolkit.core.config import Section
from toolkit.core.errors import UsageFault
from toolkit.core.masked import WHOLE, masked

SERVICE_FILE = "service.json"
OWN_HEADER = "x-toolkit-own"
"""Carries Service.own_key: the launcher's own question, no user's."""


class EngineEndpoint(Section):
    """Where one engine instance answers."""

    name: str = Field(description="prefill-0, decode-1, ...: also the metric label and the log's name.")
    role: Literal["prefill", "decode"]
    url: str = Field(description="http://host:port without a trailing slash.")
    bootstrap_host: str = Field(
        "127.0.0.1", description="Host that decode reaches the prefill's bootstrap server at."
    )
    bootstrap_port: int = Field(
        0, ge=0, le=65535, description="Port of the prefill's bootstrap server; 0 for decode."
    )


class Service(Section):
    """One started (or fronted) service."""

    config: ServeConfig
    engines: tuple[EngineEndpoint, ...]
    gateway_url: str
    model_path: str = Field(
        "", description="Resolved model folder; empty when only fronting engines whose files are elsewhere."
    )
    model_name: str
    started_at: float = Field(description="Unix seconds.")
    launcher_pid: int = 0
    own_key: str = Field(
        "", repr=False, description="Marks the launcher's own questions: nothing of them is kept."
    )

    @property
    def prefills(self) -> tuple[EngineEndpoint, ...]:
        return tuple(engine for engine in self.engines if engine.role == "prefill")

    @property
    def decodes(self) -> tuple[EngineEndpoint, ...]:
        return tuple(engine for engine in self.engines if engine.role == "decode")

    def write(self, run_dir: Path) -> Path:
        """Write service.json into the run folder, in one step: a reader sees the old file or the new one.

        Only its owner may read it: URLs in it keep their passwords, for the gateway.
        """
        path = run_dir / SERVICE_FILE
        temporary = path.with_suffix(".json.new")
        temporary.unlink(missing_ok=True)
        temporary.touch(mode=0o600)
        temporary.write_text(self.model_dump_json(indent=2, context=WHOLE), encoding="utf-8")
        temporary.replace(path)
        return path

    @classmethod
    def read(cls, run_dir: Path) -> "Service":
        """Raises UsageFault when the folder holds no readable service.json."""
        path = run_dir / SERVICE_FILE
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UsageFault(
                f"{path}: no readable service description ({masked(str(error))}). Is this a run folder of `toolkit serve`?"
            ) from error
