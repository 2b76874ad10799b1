"""Idle connections by origin, newest first: the rest age out."""

from toolkit.core.http.connection import Connection
from toolkit.core.http.url import Origin


class IdlePool:
    """Keeps; never opens. Connections it will not keep are aborted."""

    def __init__(self, max_per_origin: int, idle_timeout_s: float) -> None:
        self._max = max_per_origin
        self._timeout_s = idle_timeout_s
        self._idle: dict[Origin, dict[Connection, None]] = {}  # in order of their return

    def __len__(self) -> int:
        return sum(map(len, self._idle.values()))

    def put(self, connection: Connection, now: float) -> None:
        """Keep it, or abort it when the origin has enough."""
        kept = self._idle.setdefault(connection.origin, {})
        if len(kept) >= self._max:
            connection.abort()
            return
        connection.idle_since = now
        kept[connection] = None

    def take(self, origin: Origin, now: float) -> Connection | None:
        """The one used last, unless it is too old or its peer closed it; those are aborted."""
        kept = self._idle.get(origin)
        while kept:
            connection, _ = kept.popitem()
            if now - connection.idle_since < self._timeout_s and connection.quiet():
                return connection
            connection.abort()
        return None

    def remove(self, connection: Connection) -> None:
        """Forget it, if it is here."""
        kept = self._idle.get(connection.origin)
        if kept is not None:
            kept.pop(connection, None)
            if not kept:
                del self._idle[connection.origin]

    def expire(self, now: float) -> None:
        """Abort what has been idle for too long."""
        for connection in [c for kept in self._idle.values() for c in kept]:
            if now - connection.idle_since >= self._timeout_s:
                connection.abort()

    def clear(self) -> None:
        """Abort all."""
        for connection in [c for kept in self._idle.values() for c in kept]:
            connection.abort()
