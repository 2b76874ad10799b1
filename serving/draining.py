"""How a gateway ends: nothing that it took is lost, and it takes no longer than it may.

    SIGTERM   /readyz says 503; requests are taken as before, for drain_lead_s, until load balancers have seen it
    then      new requests get 503 `shutting_down` with Retry-After and `connection: close`; open ones go on
    the end   when none is open, after drain_timeout_s at the latest: what is open then is cut with a typed error

A second signal cuts at once.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from serving.config import GatewayConfig
from serving.lifecycle import Lifecycle
from serving.status import Status

log = logging.getLogger("toolkit.gateway")

CUT_S = 1.0
"""Longest wait until the requests that were cut have told their clients."""


class Draining:
    """Runs once. last_of_connections: makes the answers that are open the last ones of their connections."""

    def __init__(
        self,
        lifecycle: Lifecycle,
        status: Status,
        config: GatewayConfig,
        last_of_connections: Callable[[], None] = lambda: None,
    ) -> None:
        self._lifecycle = lifecycle
        self._status = status
        self._config = config
        self._last_of_connections = last_of_connections
        self._hurried = asyncio.Event()

    def hurry(self) -> None:
        """Wait for nothing any more."""
        self._hurried.set()

    async def run(self) -> None:
        """Returns when no request is open."""
        lifecycle, config = self._lifecycle, self._config
        self._status.stopping = True
        if config.drain_lead_s:
            log.info("stopping: not ready any more, requests are taken for %g s", config.drain_lead_s)
            await self._unless_hurried(asyncio.sleep(config.drain_lead_s))
        lifecycle.stopping = True
        self._last_of_connections()
        log.info("stopping: %d open requests have %g s", lifecycle.open_requests, config.drain_timeout_s)
        await self._unless_hurried(lifecycle.idle(config.drain_timeout_s))
        if lifecycle.open_requests:
            log.warning("cutting %d open requests", lifecycle.open_requests)
            lifecycle.cut()
            await lifecycle.idle(CUT_S)

    async def _unless_hurried(self, work: Coroutine[Any, Any, None]) -> None:
        tasks = {asyncio.create_task(work), asyncio.create_task(self._hurried.wait())}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
