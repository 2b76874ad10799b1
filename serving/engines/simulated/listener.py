"""A port that answers HTTP/1.1 as SGLang's does: uvicorn's own protocol, without uvicorn's server around it.

The server would bring signal handling, a tick ten times a second and an end that waits for such ticks; the wire sees none of it.
"""

import asyncio
import time
from email.utils import formatdate
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from serving.engines.simulated.http import ABORT, App

BACKLOG = 2048
ENDED_S = 1.0  # aborted connections are gone within a turn or two of the loop


class _Protocol(HttpToolsProtocol):
    """One connection; its requests are given the means to break it off."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.server_state.default_headers = [(b"date", formatdate(time.time(), usegmt=True).encode()), SERVER]
        self.scope.setdefault("extensions", {})[ABORT] = {"abort": self.transport.abort}


SERVER = (b"server", b"uvicorn")


class Listener:
    """One listening socket and its connections. port: 0 until started when the system is to choose it."""

    def __init__(self, app: App, host: str, port: int) -> None:
        self.port = port
        self._host = host
        self._state = ServerState()
        self._config = uvicorn.Config(
            app,
            http="httptools",
            loop="none",
            lifespan="off",
            ws="none",
            interface="asgi3",
            access_log=False,
            log_config=None,
        )
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Raises OSError when the address cannot be had."""
        loop = asyncio.get_running_loop()
        self._config.load()
        self._server = await loop.create_server(self._connection, self._host, self.port, backlog=BACKLOG)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Listen no more and break off what is open. Idempotent."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        for connection in list(self._state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)
        tasks = list(self._state.tasks)
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=ENDED_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def _connection(self) -> asyncio.Protocol:
        state: dict[str, Any] = {}
        return _Protocol(self._config, self._state, state)
