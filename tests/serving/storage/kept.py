"""A Storage with everything real but its instruments: they are counted here."""

import asyncio
import contextlib
import hashlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import obstore

from serving.storage.remote import Remote
from serving.storage.spool import Spool
from serving.storage.storage import Storage
from serving.storage.target import target
from serving.storage_config import StorageConfig
from tests.serving.storage.weed import KEY, SECRET
from toolkit.core.clock import SystemClock
from toolkit.core.names import Metric


class Counted:
    """Instruments: events by metric and labels, gauges by metric."""

    def __init__(self) -> None:
        self.events: Counter[str] = Counter()
        self.gauges: dict[str, float] = {}

    def count(self, metric: Metric, amount: float = 1.0, **labels: str) -> None:
        assert set(labels) == set(metric.labels)
        self.events[" ".join([metric.name.removeprefix("toolkit_storage_"), *labels.values()])] += int(amount)

    def gauge(self, metric: Metric, value: float, **labels: str) -> None:
        self.gauges[metric.name.removeprefix("toolkit_storage_")] = float(value)

    def observe(self, metric: Metric, value: float, **labels: str) -> None:
        assert value >= 0
        self.count(metric, **labels)


def picture(number: int, size: int = 20_000) -> tuple[bytes, bytes]:
    """(digest, bytes) of something that passes for an image file."""
    data = random.Random(number).randbytes(size)
    return hashlib.sha256(data).digest(), data


def image_key(digest: bytes) -> str:
    return f"images/{digest.hex()[:2]}/{digest.hex()}"


def config(url: str, spool: Path, **fields: Any) -> StorageConfig:
    """Of both kinds, with the server's keys, and time to drain."""
    if url.startswith("s3:"):
        file = spool.with_suffix(".keys.toml")
        file.write_text(f'AWS_ACCESS_KEY_ID = "{KEY}"\nAWS_SECRET_ACCESS_KEY = "{SECRET}"\n')
        fields = {"credentials_file": str(file), **fields}
    return StorageConfig.model_validate(
        {
            "url": url,
            "images": True,
            "results": True,
            "spool_dir": str(spool),
            "drain_timeout_s": 20,
            **fields,
        }
    )


@contextlib.asynccontextmanager
async def kept(
    settings: StorageConfig, counted: Counted | None = None, started: bool = True
) -> AsyncIterator[Storage]:
    found = target(settings)
    assert found is not None
    remote = Remote(found.open(), settings.retention_days)
    spool = Spool.take(Path(settings.spool_dir), found.place)
    storage = Storage(settings, remote, spool, SystemClock(), random.Random(1), counted or Counted())
    try:
        if started:
            await storage.start()
        yield storage
    finally:
        await storage.close()


def body(store: Any, key: str) -> bytes:
    return bytes(obstore.get(store, key).bytes())


def keys(store: Any) -> list[str]:
    return sorted(found["path"] for page in obstore.list(store) for found in page)


async def until(condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.005)
