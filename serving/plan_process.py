"""CPU time of a process as Linux accounts it: with its children, and of its main thread alone."""

import os
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Spent:
    """CPU seconds since the process began. whole: it and every process below it, ended ones included."""

    whole_s: float
    main_thread_s: float

    def since(self, before: "Spent") -> "Spent":
        return Spent(self.whole_s - before.whole_s, self.main_thread_s - before.main_thread_s)


def spent(pid: int) -> Spent:
    """Raises OSError when the process is gone, or this is no Linux."""
    return Spent(_whole(pid), _of(PROC / f"{pid}/task/{pid}/stat")[0])


def below(pid: int) -> list[int]:
    """Processes that it started and that live, with theirs. Empty when it is gone."""
    found: list[int] = []
    for children in (PROC / f"{pid}/task").glob("*/children"):
        try:
            named = [int(word) for word in children.read_text().split()]
        except OSError:
            continue
        for child in named:
            found += [child, *below(child)]
    return found


def _whole(pid: int) -> float:
    total = sum(_of(PROC / f"{pid}/stat"))
    for child in below(pid):
        try:
            total += sum(_of(PROC / f"{child}/stat"))
        except OSError:
            continue  # it ended meanwhile; its parent's account has it
    return total


def _of(path: Path) -> tuple[float, float]:
    """Its own seconds, and those of children that it has waited for (proc(5): utime, stime, cutime, cstime)."""
    fields = path.read_text().rpartition(")")[2].split()
    own, reaped = (int(fields[at]) + int(fields[at + 1]) for at in (11, 13))
    return own / TICKS_PER_S, reaped / TICKS_PER_S
