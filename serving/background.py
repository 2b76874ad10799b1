"""What runs beside the requests for as long as the gateway does: a failure there is told, and it begins again."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger("toolkit.gateway")

AGAIN_S = 1.0


async def kept(name: str, run: Callable[[], Awaitable[None]], again_s: float = AGAIN_S) -> None:
    """Run until cancelled. Requests that are served are worth more than a clean exit: nothing that one engine or server says
    may end them all."""
    while True:
        try:
            await run()
        except Exception:
            log.exception("%s failed; it begins again in %g s", name, again_s)
        await asyncio.sleep(again_s)
