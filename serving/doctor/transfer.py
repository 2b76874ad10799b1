"""A second of `toolkit bench transfer`, as a fact."""

import asyncio
import tempfile
from pathlib import Path

from serving.doctor.facts import Transfer
from serving.transfer_plan import plan, size_name
from serving.transfer_report import milliseconds, plain
from serving.transfer_result import GB, TYPICAL, kv_time
from serving.transfer_run import ib_devices, run
from toolkit.core.errors import ToolkitError

SECONDS = 0.25


def short(python: str, limit_s: float) -> Transfer:
    """1 MiB and 16 MiB for a quarter of a second each, in all at most `limit_s`; an error in words where that fails."""
    asked = plan("1M,16M", "1", "auto", ib_devices(), seconds=SECONDS, buffer_bytes=32 << 20, stall_s=2.0)

    async def limited(folder: Path) -> Transfer:
        async with asyncio.timeout(limit_s):
            report = await run(asked, python, folder)
        each = [
            f"{size_name(one.size_bytes)} in {milliseconds(one.p50)} ms (p50), {plain(one.bytes_per_s / GB)} GB/s"
            for one in report.cells
        ]
        big = kv_time(TYPICAL[-1], report.cells)
        kv = f"KV of {big.shape.tokens} tokens of Qwen2.5-VL-7B at least {plain(big.seconds * 1e3)} ms"
        return Transfer(asked.protocol, "; ".join((*each, kv)))

    with tempfile.TemporaryDirectory(prefix="toolkit-doctor-") as folder:
        try:
            return asyncio.run(limited(Path(folder)))
        except TimeoutError:
            return Transfer(asked.protocol, error=f"not measured within {limit_s:.1f} s", late=True)
        except ToolkitError as error:
            return Transfer(asked.protocol, error=error.message)
