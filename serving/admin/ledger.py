"""Who changed what, when, and how it is undone. Pure: time and names are passed in.

A change is a set of keys with their values before and after. Undoing it is a change too, as is what happens when a change
made for a while ends. `propose`, `undo` and `expired` only say what would be; `record` makes it so, once it is written down.

A value that was set for a while and is asked for again, for longer or for good, is changed too: the newer change takes over when
it ends, and what it gives back is what was before the first.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from serving.admin.settings import INSTANCE, Settings, Value
from serving.pools import Pools
from toolkit.core.errors import Conflict, NotFound

Kind = Literal["set", "undo", "expiry"]


@dataclass(frozen=True, slots=True)
class Change:
    """One change. at, until: Unix seconds. who: the token's name. of: the change that this one takes back."""

    id: int
    at: float
    who: str
    kind: Kind
    reason: str
    before: Mapping[str, Value]
    after: Mapping[str, Value]
    of: int | None = None
    until: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> "Change":
        """Raises TypeError for what is no change."""
        return cls(**record)


class Ledger:
    """The present settings, and all changes that led to them."""

    def __init__(self, configured: Settings) -> None:
        self.configured = configured
        self.present = configured
        self.changes: list[Change] = []
        self.ended_by: dict[int, int] = {}  # changes that were taken back or ended, by which
        self._ending: dict[int, Change] = {}
        self._lost: set[tuple[int, str]] = set()  # keys of these that somebody has set since
        self._took: dict[int, set[tuple[int, str]]] = {}  # by whom, where taking that back gives them back

    @property
    def ending(self) -> list[Change]:
        """Changes made for a while that still have something to end, the next one first."""
        return sorted(
            (change for change in self._ending.values() if self._mine(change)),
            key=lambda change: change.until or 0.0,
        )

    def ends_at(self, key: str) -> float | None:
        """When the present value was set to end, Unix seconds; None where it was not."""
        holder = self._holder(key)
        return None if holder is None else holder.until

    def overridden(self) -> dict[str, Value]:
        """Configured values of what is otherwise now."""
        now = self.present.values()
        return {key: value for key, value in self.configured.values().items() if now[key] != value}

    def propose(
        self,
        asked: Mapping[str, Value],
        *,
        who: str,
        reason: str,
        at: float,
        up: Collection[str],
        for_s: float | None = None,
        force: bool = False,
    ) -> Change | None:
        """The change that gives these keys these values; None where all have them, for as long. up: engines that answer.

        Raises InvalidRequest, and Conflict where it would leave some requests no engine to be given to, unless forced.
        """
        present, settings = self.present.values(), self.present.changed(asked)
        now = settings.values()
        until = None if for_s is None else at + for_s
        before: dict[str, Value] = {}
        for key in asked:
            if now[key] != present[key]:
                before[key] = present[key]
            elif (held := self._holder(key)) and (until is None or until > (held.until or 0.0)):
                before[key] = held.before[key]
        if not before:
            return None
        if not force:
            self._keeps_serving(settings, up)
        after = {key: now[key] for key in before}
        return Change(self._next, at, who, "set", reason, before, after, until=until)

    def undo(
        self, number: int, *, who: str, reason: str, at: float, up: Collection[str], force: bool = False
    ) -> Change:
        """The change that takes one back.

        Raises NotFound, and Conflict where a value is not what that change made it any more, or where nothing would be
        left to give work to; forced, the values from before it are set in any case.
        """
        change = self.find(number)
        present = self.present.values()
        other = [key for key, value in change.after.items() if present.get(key) != value]
        if other and not force:
            told = ", ".join(
                f"{key} is {json.dumps(present.get(key))} now, not {json.dumps(change.after[key])}"
                for key in other
            )
            since = f" (change {self.ended_by[number]} took it back)" if number in self.ended_by else ""
            raise Conflict(f"Change {number} cannot be undone as it was{since}: {told}.", param=other[0])
        settings = self.present.changed(change.before)
        if not force:
            self._keeps_serving(settings, up)
        now = settings.values()
        before = {key: present[key] for key in change.before}
        return Change(
            self._next, at, who, "undo", reason, before, {key: now[key] for key in before}, of=number
        )

    def expired(self, now: float) -> Change | None:
        """What ends by now, one at a time; keys that somebody has set to something else since are left alone."""
        change = next(iter(self.ending), None)
        if change is None or change.until is None or change.until > now:
            return None
        before = {key: change.after[key] for key in self._mine(change)}
        after = {key: change.before[key] for key in before}
        return Change(self._next, now, change.who, "expiry", change.reason, before, after, of=change.id)

    def record(self, change: Change) -> None:
        """It is so. Raises InvalidRequest where the settings do not know it; then it is listed, and changes nothing."""
        self.changes.append(change)
        present = self.present.values()
        self.present = self.present.changed(change.after)
        if change.of is not None:
            self._ending.pop(change.of, None)
            self.ended_by[change.of] = change.id
            self._lost -= self._took.pop(change.of, set())
        else:
            taken = {(one, key) for one in self._ending for key in change.after} - self._lost
            self._lost |= taken
            self._took[change.id] = {
                (one, key) for one, key in taken if present[key] == change.before.get(key)
            }
        if change.until is not None:
            self._ending[change.id] = change

    def find(self, number: int) -> Change:
        """Raises NotFound."""
        found = next((change for change in self.changes if change.id == number), None)
        if found is None:
            raise NotFound(
                f"There is no change {number}; the last one is {self._next - 1}.",
                action="GET /admin/v1/changes lists them.",
            )
        return found

    @property
    def _next(self) -> int:
        return self.changes[-1].id + 1 if self.changes else 1

    def _mine(self, change: Change) -> list[str]:
        """Keys that still are what the change made them, and are not another's to end."""
        present = self.present.values()
        return [
            key
            for key, value in change.after.items()
            if present.get(key) == value and (change.id, key) not in self._lost
        ]

    def _holder(self, key: str) -> Change | None:
        """The change for a while that the key has its present value from."""
        return next((change for change in self._ending.values() if key in self._mine(change)), None)

    def _keeps_serving(self, settings: Settings, up: Collection[str]) -> None:
        prefills = [name for name, role in settings.roles.items() if role == "prefill"]
        decodes = frozenset(settings.roles) - frozenset(prefills)
        places = [("decode engine", decodes)]
        for pool in Pools(settings.config.pools, prefills).all:
            whose = f" of the pool {pool.name!r}" if settings.config.pools else ""
            whose += " or its fallback" if pool.then else ""
            places.append((f"prefill engine{whose}", pool.prefills | pool.then))
        for what, engines in places:
            had, has = (_taking(of, engines, up) for of in (self.present, settings))
            if had and not has:
                several = "were the last that are up" if len(had) > 1 else "was the last that is up"
                raise Conflict(
                    f"No {what} would be left to give work to ({', '.join(sorted(had))} {several}).",
                    code="nothing_left_to_serve",
                    param=f"{INSTANCE}{min(had)}.drained",
                )


def _taking(settings: Settings, engines: Collection[str], up: Collection[str]) -> set[str]:
    return {
        name
        for name, placing in settings.instances.items()
        if name in engines and name in up and not placing.drained
    }
