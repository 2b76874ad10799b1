"""How many downloads run at once: so many in all, so many of one host. Who comes then waits, hosts in turn.

A slow host fills its own share and its own line. The others' downloads pass it, and when all places are taken the
next one goes to the host that has waited longest for its turn, not to the longest line.
"""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable

from toolkit.core.errors import Busy

WAITING_PER_PLACE = 4
"""Downloads that may wait for each place of their host; beyond, they are refused at once."""

Told = Callable[[int, int], None]
"""Is told how many run and how many wait, after each change."""


def _untold(running: int, waiting: int) -> None:
    pass


class Turns:
    """Places for downloads. Used from one event loop; who takes a turn gives it back."""

    def __init__(self, most: int, most_per_host: int, told: Told = _untold) -> None:
        self._most = most
        self._most_per_host = most_per_host
        self._told = told
        self._running: Counter[str] = Counter()
        self._lines: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self.running = 0
        self.waiting = 0

    async def take(self, host: str) -> None:
        """Returns when the host has a place. A caller that is cancelled leaves the line. Raises Busy(queue_full)."""
        if self.running < self._most and self._running[host] < self._most_per_host:
            self._start(host)
            return
        line = self._lines.setdefault(host, deque())
        if len(line) >= WAITING_PER_PLACE * self._most_per_host:
            raise Busy(f"{len(line)} images from that host wait to be downloaded already.", retry_after_s=1.0)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.append(turn)
        self.waiting += 1
        self._told(self.running, self.waiting)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_back(host)  # the turn was given and is passed on
            else:
                self._leave(host, turn)
            raise

    def give_back(self, host: str) -> None:
        """The host's download has ended."""
        self.running -= 1
        self._running[host] -= 1
        if not self._running[host]:
            del self._running[host]
        while self.running < self._most and (ready := self._next()) is not None:
            turn = self._lines[ready][0]
            self._leave(ready, turn)
            if ready in self._lines:
                self._lines.move_to_end(ready)
            if not turn.done():  # cancelled, and its task has yet to hear of it
                self._start(ready)
                turn.set_result(None)
        self._told(self.running, self.waiting)

    def check(self) -> None:
        """Raises AssertionError unless the counts add up and keep their bounds."""
        assert self.running == sum(self._running.values()) <= self._most, "running does not add up"
        assert self.waiting == sum(len(line) for line in self._lines.values()), "waiting does not add up"
        assert all(0 < count <= self._most_per_host for count in self._running.values()), "a host's bound"
        assert all(self._lines.values()), "an empty line is kept"

    def _start(self, host: str) -> None:
        self.running += 1
        self._running[host] += 1
        self._told(self.running, self.waiting)

    def _next(self) -> str | None:
        return next((host for host in self._lines if self._running[host] < self._most_per_host), None)

    def _leave(self, host: str, turn: asyncio.Future[None]) -> None:
        line = self._lines.get(host)
        if line is None or turn not in line:
            return
        line.remove(turn)
        self.waiting -= 1
        if not line:
            del self._lines[host]
