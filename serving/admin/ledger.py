"""Who changed what, when, and how it is undone. Pure: time and names are passed in.

A change is a set of keys with their values before and after. Undoing it is a change too, as is what happens when a change
made for a while ends. `propose`, `undo` and `expired` only say what would be, and only what the settings take; `record` makes it
so, once it is written down.

Values lie in layers, the configured one undermost: a change lays its value on top, the end of one made for a while takes it off,
and what lies there then holds, unless its time is over as well. So temporary values may overlap as they like and leave nothing
behind. A value that is asked for again, for longer or for good, takes its layer's place. Undoing a change gives back the layers
from before it, with their ends; undoing an expiry lays the value on top for good.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from serving.admin.settings import INSTANCE, Settings, Value
from serving.pools import Pools
from toolkit.core.errors import Conflict, InvalidRequest, NotFound

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
        change = cls(**record)
        texts = [change.who, change.kind, change.reason, *change.before, *change.after]
        whole = [change.id, change.of or 0]
        times = [change.at, change.until or 0.0]
        if (
            not all(isinstance(text, str) for text in texts)
            or not all(type(number) is int for number in whole)
            or not all(type(time) in (int, float) for time in times)
            or not (isinstance(change.before, dict) and isinstance(change.after, dict))
            or change.before.keys() != change.after.keys()
            or change.kind not in get_args(Kind)
        ):
            raise TypeError("no change")
        return change


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    """A key's value by one change (0: as configured) until then; under: what it lies on."""

    change: int
    value: Value
    until: float | None = None
    under: "_Layer | None" = None

    def at(self, now: float) -> "_Layer":
        """The uppermost from here down whose time is not over."""
        layer = self
        while layer.under is not None and layer.until is not None and layer.until <= now:
            layer = layer.under
        return layer


class Ledger:
    """The present settings, and all changes that led to them."""

    def __init__(self, configured: Settings) -> None:
        self.configured = configured
        self.present = configured
        self.changes: list[Change] = []
        self.ended_by: dict[int, int] = {}  # changes that were taken back or ended, by which
        self.kept: dict[int, str] = {}  # changes that hold beyond their time, and why
        self._top = {key: _Layer(0, value) for key, value in configured.values().items()}
        self._under: dict[tuple[int, str], _Layer] = {}  # by change and key: what taking it back gives
        self._left: dict[tuple[int, str], _Layer] = {}  # and what was on top after it

    @property
    def ending(self) -> list[Change]:
        """Changes made for a while whose values are on top, the next one to end first."""
        held = {layer.change for layer in self._top.values() if layer.until is not None}
        return sorted(
            (change for change in self.changes if change.id in held), key=lambda one: one.until or 0.0
        )

    def ends_at(self, key: str) -> float | None:
        """When the present value was set to end, Unix seconds; None where it was not."""
        return self._top[key].until

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
            elif (ends := self.ends_at(key)) is not None and (until is None or until > ends):
                before[key] = self._beneath(key, at).value
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

        Raises NotFound, InvalidRequest, and Conflict where a value is not the one that the change made any more, or where
        nothing would be left to give work to; forced, the values from before it are set in any case.
        """
        change = self.find(number)
        present = self.present.values()
        other = [key for key in change.after if not self._stands(change, key)]
        if other and not force:
            told = ", ".join(
                f"{key} is {json.dumps(present.get(key))} now, not {json.dumps(change.after[key])}"
                if present.get(key) != change.after[key]
                else f"{key} was set to {json.dumps(present[key])} again since"
                for key in other
            )
            since = f" (change {self.ended_by[number]} took it back)" if number in self.ended_by else ""
            raise Conflict(f"Change {number} cannot be undone as it was{since}: {told}.", param=other[0])
        back = {key: self._back(change, key, at) for key in change.before}
        settings = self.present.changed(
            {
                key: value if (layer := back[key]) is None else layer.value
                for key, value in change.before.items()
            }
        )
        if not force:
            self._keeps_serving(settings, up)
        now = settings.values()
        before = {key: present[key] for key in change.before}
        ends = [layer.until for layer in back.values() if layer is not None and layer.until is not None]
        return Change(
            self._next,
            at,
            who,
            "undo",
            reason,
            before,
            {key: now[key] for key in before},
            of=number,
            until=min(ends, default=None),
        )

    def expired(self, now: float, up: Collection[str] = ()) -> Change | None:
        """What ends by now, one at a time; keys that somebody has set since are left alone. up: engines that answer.

        What would contradict the other settings, or leave some requests no engine, does not end yet: `kept` tells.
        """
        kept: dict[int, str] = {}
        present = self.present.values()
        for change in self.ending:
            if change.until is None or change.until > now:
                break
            after = {
                key: layer.at(now).value for key, layer in self._top.items() if layer.change == change.id
            }
            try:
                self._keeps_serving(self.present.changed(after), up)
            except (InvalidRequest, Conflict) as error:
                kept[change.id] = error.message
                continue
            before = {key: present[key] for key in after}
            return Change(self._next, now, change.who, "expiry", change.reason, before, after, of=change.id)
        self.kept = kept
        return None

    def record(self, change: Change) -> None:
        """It is so. Raises InvalidRequest where the settings do not know it; then it is listed, and changes nothing."""
        self.changes.append(change)
        self.present = self.present.changed(change.after)
        for key in change.after:
            top = self._top[key]
            layer = self._layer(change, key)
            self._under[change.id, key] = top if change.of is not None else layer.under or top
            self._top[key] = self._left[change.id, key] = layer
        if change.of is not None:
            self.ended_by[change.of] = change.id

    def find(self, number: int) -> Change:
        """Raises NotFound."""
        found = self._known(number)
        if found is None:
            raise NotFound(
                f"There is no change {number}; the last one is {self._next - 1}.",
                action="GET /admin/v1/changes lists them.",
            )
        return found

    @property
    def _next(self) -> int:
        return self.changes[-1].id + 1 if self.changes else 1

    def _known(self, number: int | None) -> Change | None:
        return next((change for change in reversed(self.changes) if change.id == number), None)

    def _layer(self, change: Change, key: str) -> _Layer:
        """What is on top after the change."""
        top, value = self._top[key], change.after[key]
        if change.of is None:
            prolongs = top.value == value and top.until is not None
            return _Layer(change.id, value, change.until, self._beneath(key, change.at) if prolongs else top)
        undone = self._known(change.of)
        if change.kind == "expiry":
            back: _Layer | None = top.at(change.at)
        else:
            back = None if undone is None else self._back(undone, key, change.at)
        return back if back is not None and back.value == value else _Layer(change.id, value, None, top)

    def _beneath(self, key: str, now: float) -> _Layer:
        top = self._top[key]
        return (top.under or top).at(now)

    def _stands(self, change: Change, key: str) -> bool:
        """The key still is as the change left it."""
        return key in self._top and self._top[key] is self._left.get((change.id, key))

    def _back(self, change: Change, key: str, now: float) -> _Layer | None:
        """What lies there without the change; None where its value before is to be laid on top for good."""
        under = None if change.kind == "expiry" else self._under.get((change.id, key))
        return under and under.at(now)

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
