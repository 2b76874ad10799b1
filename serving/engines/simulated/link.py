"""The wire between prefill and its decodes, shared: of N transfers under way each moves at 1/N of the link's rate.

A transfer waits out its own latency first, alone; then its bytes are under way. Between two events (a start, an end) the
shares are constant, so each instant follows by arithmetic and nothing is stepped.
"""

from dataclasses import dataclass

DUST_BYTES = 1e-6  # what rounding may leave of a transfer that has ended


@dataclass(slots=True)
class _Moving:
    left: float


class Link:
    """Transfers by name. rate: bytes per second, all together. Time goes forward only."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._at = 0.0
        self._waiting: dict[str, tuple[float, float]] = {}
        self._moving: dict[str, _Moving] = {}

    def __len__(self) -> int:
        return len(self._waiting) + len(self._moving)

    def begin(self, name: str, size: float, starts_at: float) -> None:
        """size: bytes; starts_at: when its latency is over."""
        self._waiting[name] = (starts_at, size)

    def cancel(self, name: str) -> None:
        """Idempotent. Its share goes to the others from the last instant that `until` has seen."""
        self._waiting.pop(name, None)
        self._moving.pop(name, None)

    def next_at(self) -> float | None:
        """When the next transfer starts or ends, if nothing else happens."""
        times = [at for at, _ in self._waiting.values()]
        if self._moving:
            least = min(one.left for one in self._moving.values())
            times.append(self._at + max(0.0, least) * len(self._moving) / self._rate)
        return min(times, default=None)

    def until(self, now: float) -> list[str]:
        """Let time pass; which transfers have ended, in order."""
        ended: list[str] = []
        while (at := self.next_at()) is not None and at <= now:
            first = min(self._moving, key=lambda name: self._moving[name].left, default=None)
            due = first is not None and all(at < start for start, _ in self._waiting.values())
            self._move(at)
            done = [name for name, one in self._moving.items() if one.left <= DUST_BYTES]
            if due and first is not None and first not in done:
                done.append(first)  # rounding left more than dust: it is the one that was to end now
            for name in done:
                del self._moving[name]
            ended += done
            for name in [name for name, (start, _) in self._waiting.items() if start <= at]:
                self._moving[name] = _Moving(self._waiting.pop(name)[1])
        self._move(now)
        return ended

    def _move(self, at: float) -> None:
        if at > self._at:
            for one in self._moving.values():
                one.left -= (at - self._at) * self._rate / len(self._moving)
            self._at = at
