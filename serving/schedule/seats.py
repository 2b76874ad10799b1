"""Places in the waiting room: so many in all, so many of them for one SLO class, and of those so many for one workload class. Pure.

A flood of one kind fills its share and no more: texts of batch take no seat of a realtime text. A share is at least one seat, and rounded up. Requests whose body has not
been read are of no workload class yet; their SLO class bounds them. Kinds that share the decodes (shares.py) share the room alike.
"""

from collections import Counter
from dataclasses import dataclass
from math import ceil

from serving.schedule.priority import Rules
from toolkit.core.sample import SloClass, WorkloadClass


@dataclass(frozen=True, slots=True)
class Seat:
    """Who sits there, as far as it is known. deadline: monotonic instant of the first token."""

    slo_class: SloClass
    workload_class: WorkloadClass
    deadline: float


class Seats:
    """Seats by key."""

    def __init__(self, rules: Rules) -> None:
        self._seats: dict[str, Seat] = {}
        self._slo: Counter[SloClass] = Counter()
        self._workload: Counter[tuple[SloClass, WorkloadClass]] = Counter()
        self.retune(rules)

    def retune(self, rules: Rules) -> None:
        """Other bounds from now on. Those who sit keep their seats, so until they leave there may be more than the bounds."""
        most = rules.max_waiting
        self._most = most
        self._slo_most = {
            slo: max(1, ceil(most * treatment.room_share)) for slo, treatment in rules.treatments.items()
        }
        self._workload_most = {
            slo: max(1, ceil(seats * rules.workload_share)) for slo, seats in self._slo_most.items()
        }
        self._kinds = rules.kinds
        self._kind_most = {
            kind: max(1, ceil(most * share / sum(rules.shares.values())))
            for kind, share in rules.shares.items()
        }
        self._kept = len(self._seats), Counter(self._slo), Counter(self._workload)

    def __len__(self) -> int:
        return len(self._seats)

    def __contains__(self, key: str) -> bool:
        return key in self._seats

    def __getitem__(self, key: str) -> Seat:
        return self._seats[key]

    def full_for(self, seat: Seat) -> str | None:
        """Why there is no seat, or None."""
        if len(self._seats) >= self._most:
            return f"the gateway already holds {self._most} waiting requests"
        if self._slo[seat.slo_class] >= self._slo_most[seat.slo_class]:
            return f"{self._slo_most[seat.slo_class]} requests of SLO class {seat.slo_class} wait already"
        return self.full_of(seat.slo_class, seat.workload_class)

    def full_of(
        self,
        slo_class: SloClass,
        workload_class: WorkloadClass,
        seated_as: WorkloadClass = WorkloadClass.UNCLASSIFIED,
    ) -> str | None:
        """Why there is no seat for one more of these classes, or None. seated_as: what it was taken for until now."""
        if workload_class is WorkloadClass.UNCLASSIFIED:
            return None
        most = self._workload_most[slo_class]
        if self._workload[slo_class, workload_class] >= most:
            return f"{most} requests of class {workload_class} and SLO class {slo_class} wait already"
        kind = self._kinds.get(workload_class)
        if kind is None or kind == self._kinds.get(seated_as):
            return None
        waiting = sum(count for (_, one), count in self._workload.items() if self._kinds.get(one) == kind)
        return (
            f"{waiting} requests of the pool {kind} wait already"
            if waiting >= self._kind_most[kind]
            else None
        )

    def take(self, key: str, seat: Seat) -> None:
        self._seats[key] = seat
        self._slo[seat.slo_class] += 1
        self._workload[seat.slo_class, seat.workload_class] += 1

    def free(self, key: str) -> None:
        """Give the seat back; nothing happens when there is none."""
        seat = self._seats.pop(key, None)
        if seat is not None:
            self._slo[seat.slo_class] -= 1
            self._workload[seat.slo_class, seat.workload_class] -= 1

    def check(self) -> None:
        """Raise AssertionError unless counts and bounds hold; above a bound only those who sat when it was set."""
        kept, kept_slo, kept_workload = self._kept
        assert len(self._seats) <= max(self._most, kept)
        assert +self._slo == Counter(seat.slo_class for seat in self._seats.values())
        assert +self._workload == Counter(
            (seat.slo_class, seat.workload_class) for seat in self._seats.values()
        )
        assert all(count <= max(self._slo_most[slo], kept_slo[slo]) for slo, count in self._slo.items())
        assert all(
            count <= max(self._workload_most[slo], kept_workload[slo, workload])
            for (slo, workload), count in self._workload.items()
            if workload is not WorkloadClass.UNCLASSIFIED
        )
