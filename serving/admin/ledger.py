"""Who changed what, when, and how it is undone. Pure: time and names are passed in.

A change is a set of keys with their values before and after. Undoing it is a change too, as is what happens when a change
made for a while ends. `propose`, `undo` and `expired` only say what would be; `record` makes it so, once it is written down.
"""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from serving.admin.settings import INSTANCE, Settings, Value
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
        self._ending: dict[int, Change] = {}

    @property
    def ending(self) -> list[Change]:
        """Changes made for a while that have not ended, the next one first."""
        return sorted(self._ending.values(), key=lambda change: change.until or 0.0)

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
        """The change that gives these keys these values; None where all have them. up: engines that answer.

        Raises InvalidRequest, and Conflict where it would leave no engine of a role to give work to, unless forced.
        """
        present, settings = self.present.values(), self.present.changed(asked)
        now = settings.values()
        after = {key: now[key] for key in asked if now[key] != present[key]}
        if not after:
            return None
        if not force:
            self._keeps_serving(settings, up)
        until = None if for_s is None else at + for_s
        before = {key: present[key] for key in after}
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
            told = ", ".join(f"{key} is {present.get(key)!r} now, not {change.after[key]!r}" for key in other)
            raise Conflict(f"Change {number} cannot be undone as it was: {told}.", param=other[0])
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
        for change in self.ending:
            if change.until is None or change.until > now:
                return None
            present = self.present.values()
            mine = {
                key: change.before[key] for key, value in change.after.items() if present.get(key) == value
            }
            if mine:
                before = {key: change.after[key] for key in mine}
                return Change(
                    self._next, now, change.who, "expiry", change.reason, before, mine, of=change.id
                )
            del self._ending[change.id]
        return None

    def record(self, change: Change) -> None:
        """It is so. Raises InvalidRequest where the settings do not know it; then it is listed, and changes nothing."""
        self.changes.append(change)
        self.present = self.present.changed(change.after)
        if change.of is not None:
            self._ending.pop(change.of, None)
        if change.until is not None:
            self._ending[change.id] = change

    def find(self, number: int) -> Change:
        """Raises NotFound."""
        found = next((change for change in self.changes if change.id == number), None)
        if found is None:
            raise NotFound(f"There is no change {number}; GET /admin/v1/changes lists them.")
        return found

    @property
    def _next(self) -> int:
        return self.changes[-1].id + 1 if self.changes else 1

    def _keeps_serving(self, settings: Settings, up: Collection[str]) -> None:
        for role in ("prefill", "decode"):
            had, has = _taking(self.present, role, up), _taking(settings, role, up)
            if had and not has:
                raise Conflict(
                    f"No {role} engine would be left to give work to ({', '.join(sorted(had))} was the last that is up).",
                    code="nothing_left_to_serve",
                    param=f"{INSTANCE}{min(had)}.drained",
                )


def _taking(settings: Settings, role: str, up: Collection[str]) -> set[str]:
    return {
        name
        for name, placing in settings.instances.items()
        if settings.roles[name] == role and name in up and not placing.drained
    }
