"""What doctor knows of a machine, as plain values. None or empty: it could not be told here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Engine:
    """The engine environment. packages: distribution -> version, of those that matter. finished: make install ended."""

    python: str
    finished: bool
    packages: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Cpu:
    """cores: of the machine; usable: those this process may use (affinity); quota: of its cgroup, in cores."""

    model: str
    cores: int
    usable: int
    load: float  # of the last minute
    quota: float | None = None
    governor: str = ""

    @property
    def room(self) -> float:
        """Cores that can be had at most."""
        return self.usable if self.quota is None else min(self.usable, self.quota)


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes. limit, used: of the cgroup, where it has a limit."""

    total: int
    available: int
    limit: int | None = None
    used: int = 0
    shm_total: int = 0
    shm_free: int = 0

    @property
    def room(self) -> int:
        """What can still be had: of the machine, and below the cgroup's limit."""
        return self.available if self.limit is None else min(self.available, max(0, self.limit - self.used))


@dataclass(frozen=True, slots=True)
class Disk:
    """Where run folders go. Bytes."""

    path: str
    free: int


@dataclass(frozen=True, slots=True)
class Port:
    """A port that a command takes by default. holder: who listens there, empty for nobody."""

    number: int
    purpose: str
    holder: str = ""


@dataclass(frozen=True, slots=True)
class Decoder:
    """What decodes images in the gateway. libjpeg_turbo: its version, empty when Pillow was built on another libjpeg.

    fast: the libraries of that extra; lacks: why it is not used.
    """

    pillow: str
    libjpeg_turbo: str
    formats: tuple[str, ...]
    margin: float
    fast: tuple[str, ...] = ()
    lacks: str = ""


@dataclass(frozen=True, slots=True)
class Clock:
    """Seconds. late_s: by how much sleeps of a millisecond ended late, the median of some."""

    resolution_s: float
    late_s: float
    timerfd: bool


@dataclass(frozen=True, slots=True)
class Generator:
    """The load generator's last self-check here, in words."""

    honest: bool
    text: str


@dataclass(frozen=True, slots=True)
class Transfer:
    """A short run of `toolkit bench transfer`. text: what was measured; error: why nothing was."""

    protocol: str
    text: str = ""
    error: str = ""
    late: bool = False  # the machine was too busy to finish in the seconds it had


@dataclass(frozen=True, slots=True)
class Service:
    """The service that runs/latest names. state: what its launcher and its gateway say. waiting: for which processes, while
    it starts."""

    folder: str
    url: str
    state: Literal["ready", "starting", "not ready", "silent", "ended"]
    waiting: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything, once."""

    toolkit: str
    python: str
    engine: Engine | None = None
    cpu: Cpu | None = None
    memory: Memory | None = None
    gpus: tuple[str, ...] = ()
    rdma: tuple[str, ...] = ()
    disk: Disk | None = None
    open_files: tuple[int, int] | None = None  # soft and hard limit
    ports: tuple[Port, ...] = ()
    engine_ports_free: int | None = None
    decoder: Decoder | None = None
    uvloop: str = ""
    clock: Clock | None = None
    generator: Generator | None = None
    transfer: Transfer | None = None  # None: not asked for
    service: Service | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
