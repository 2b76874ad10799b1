"""The sessions that a prefill engine has given up: one failed transfer, and a decode gets nothing for at least 30 s.

As in SGLang 0.5.23 (mooncake/conn.py:2584, 3141): a failed session is probed first after 30 s, then after twice as long each
time up to 300 s; a probe that works takes it off the list and counts as a recovery.
"""

from dataclasses import dataclass

FIRST_PROBE_S = 30.0
LONGEST_PROBE_S = 300.0
IDLE_DROP_S = 600.0


@dataclass(slots=True)
class _Failed:
    probe_at: float
    wait_s: float
    used_at: float


class SessionBlacklist:
    """Failed sessions by name."""

    def __init__(self) -> None:
        self._failed: dict[str, _Failed] = {}
        self.recoveries = 0

    def fail(self, session: str, now: float) -> None:
        """A transfer to the session failed; one that is listed stays as it is."""
        self._failed.setdefault(session, _Failed(now + FIRST_PROBE_S, FIRST_PROBE_S, now))

    def blocks(self, session: str, now: float) -> bool:
        """Whether a transfer to the session fails at once."""
        failed = self._failed.get(session)
        if failed is not None:
            failed.used_at = now
        return failed is not None

    def due(self, now: float) -> tuple[str, ...]:
        """Sessions to probe now, each once per wait; those nobody used for long are dropped instead."""
        for session in [name for name, one in self._failed.items() if now - one.used_at >= IDLE_DROP_S]:
            del self._failed[session]
        found = tuple(name for name, one in self._failed.items() if one.probe_at <= now)
        for name in found:
            self._failed[name].probe_at = now + self._failed[name].wait_s
        return found

    def probed(self, session: str, alive: bool, now: float) -> None:
        """What a probe found."""
        failed = self._failed.get(session)
        if failed is None:
            return
        if alive:
            del self._failed[session]
            self.recoveries += 1
        else:
            failed.wait_s = min(2 * failed.wait_s, LONGEST_PROBE_S)
            failed.probe_at = now + failed.wait_s

    def next_at(self) -> float | None:
        """When the next probe is due."""
        return min((one.probe_at for one in self._failed.values()), default=None)
