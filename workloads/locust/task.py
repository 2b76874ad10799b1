"""What a worker tells its request core. Here, apart from both, since one runs on gevent and the other on asyncio."""

from dataclasses import asdict, dataclass, field
from io import BufferedIOBase, RawIOBase
from typing import Any

import orjson

from toolkit.core.plan import Plan
from workloads.locust.split import Share
from workloads.shelf import MAX_BODY_BYTES

GO, STOP = b"go\n", b"stop\n"
PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Task:
    """What a core is given, beside the plan. api_key: for the target; never written down.

    returning, seed: the profile's, for clients who come back.
    """

    target: str
    model: str
    api_key: str = ""
    share_index: int = 0
    share_of: int = 1
    extra_body: dict[str, Any] = field(default_factory=dict)
    max_body_bytes: int = MAX_BODY_BYTES
    request_timeout_s: float = 120.0
    drain_s: float = 60.0
    returning: dict[str, Any] = field(default_factory=dict)
    seed: int = 1

    @property
    def share(self) -> Share:
        return Share(self.share_index, self.share_of)

    def to_bytes(self, plan: bytes) -> bytes:
        """What is written to the core's standard input first."""
        return (
            orjson.dumps({"plan_bytes": len(plan), **asdict(self)}, option=orjson.OPT_APPEND_NEWLINE) + plan
        )


def read_task(source: BufferedIOBase | RawIOBase) -> tuple[Task, Plan]:
    """The inverse of `to_bytes`, from a raw file too. Raises UsageFault for a plan of another version; EOFError where the parent ended."""
    line = source.readline()
    if not line:
        raise EOFError
    fields = orjson.loads(line)
    wanted = fields.pop("plan_bytes")
    data = bytearray()
    while len(data) < wanted:
        if not (piece := source.read(min(PIECE, wanted - len(data)))):
            raise EOFError
        data += piece
    return Task(**fields), Plan.from_json(bytes(data))
