"""HTTP servers of a gateway: uvicorn with our own protocol, on sockets that are bound before anything else is done."""

import contextlib
import socket
from collections.abc import Iterator

import uvicorn

from serving.asgi import Handler, asgi_app
from serving.binding import socket_for, unbindable
from serving.protocol import BoundedProtocol


class Server(uvicorn.Server):
    """uvicorn without its own signal handling: stopping is the gateway's to order."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def last_of_connections(self) -> None:
        """Connections with a request at work end with its answer; idle ones stay, to be told when they ask."""
        for connection in self.server_state.connections:
            cycle = connection.cycle if isinstance(connection, BoundedProtocol) else None
            if cycle is not None and not cycle.response_complete:
                cycle.keep_alive = False


def server_of(handle: Handler) -> Server:
    """A server that hands every request to `handle`."""
    config = uvicorn.Config(
        asgi_app(handle),
        http=BoundedProtocol,
        loop="none",
        lifespan="off",
        ws="none",
        interface="asgi3",
        access_log=False,
        server_header=False,
        date_header=True,
        log_config=None,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=1,
        backlog=2048,
    )
    return Server(config)


def listen(host: str, port: int) -> socket.socket:
    """A bound socket. Raises EnvironmentFault in one line when the address cannot be had."""
    listener = socket_for(host)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise unbindable(host, port, error) from error
    listener.setblocking(False)
    return listener
