"""The order among those inside the engines, handed to engines that schedule by priority (`x-override-priority`). Pure.

    level = TOP for who is due (priority.py), else round(log2(priority)) + 6, from 0 to TOP - 1          higher goes first

Inside a level SGLang goes by arrival (schedule_policy.py:526), and for ever: a level of its own would starve a long request
beside a stream of short ones. So whoever enters while somebody inside waits for its first token past its due gets that
one's level at most. Who is due is then passed only by those that were inside already.

Few levels, since SGLang makes each value a label of its metrics (tokenizer_manager.py:3230).
"""

from collections.abc import Set
from math import log2

from serving.config import PRIORITY_LEVELS

TOP = PRIORITY_LEVELS - 1
UNIT = 6
"""Of a request with a priority of 1: standard, as short as can be, and not waiting."""


class Levels:
    """Those inside that have had no first token yet. Instants on the monotonic clock, seconds."""

    def __init__(self) -> None:
        self._inside: dict[str, tuple[float, int]] = {}  # due, level

    def enter(self, key: str, priority: float, due: float, now: float) -> int:
        """Its level, for as long as it is inside."""
        own = TOP if due <= now else min(TOP - 1, max(0, round(log2(priority)) + UNIT))
        level = min([own, *(other for since, other in self._inside.values() if since <= now)])
        self._inside[key] = (due, level)
        return level

    def leave(self, key: str) -> None:
        """It has had its first token, or none is to come; nothing happens when it is not there."""
        self._inside.pop(key, None)

    @property
    def inside(self) -> Set[str]:
        """Those that count."""
        return self._inside.keys()
