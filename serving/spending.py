"""How a request's one TTFT budget is spent: what is left for a hop, given what those after it take at least."""

from serving.promise import out_of_time
from serving.recording import Recording
from serving.schedule.floors import Floors
from toolkit.core.clock import Clock
from toolkit.core.errors import OutOfTime
from toolkit.core.sample import WorkloadClass


class Spending:
    """Of one gateway. Every hop asks it for its time, and hands back what it took."""

    def __init__(self, floors: Floors, clock: Clock) -> None:
        self._floors = floors
        self._clock = clock

    def lacking_s(self, recording: Recording, hop: str) -> float:
        """What the hops after this one take at least."""
        kind = recording.workload_class
        images = None if kind is WorkloadClass.UNCLASSIFIED else kind is not WorkloadClass.TEXT_ONLY
        return self._floors.after_s(hop, images, self._clock.monotonic())

    def by(self, recording: Recording, hop: str) -> float:
        """The monotonic instant by which the hop must have ended."""
        return recording.deadline - self.lacking_s(recording, hop)

    def left_s(self, recording: Recording, hop: str) -> float:
        """What is left for the hop."""
        return max(0.0, self.by(recording, hop) - self._clock.monotonic())

    def out(self, recording: Recording, hop: str) -> OutOfTime:
        """The 504 of a request whose time for the hop ended."""
        return out_of_time(hop, recording.promise.budget_s, self.lacking_s(recording, hop))

    def learn(self, recording: Recording) -> None:
        """From a request that had its first token at its first attempt."""
        first = recording.progress.first_token_at
        if first is None or recording.progress.lost or recording.fallback is not None:
            return
        images = recording.workload_class is not WorkloadClass.TEXT_ONLY
        marks = [recording.body_read, recording.fetched, recording.prepared, recording.admitted, first]
        for hop, begun, ended in zip(("fetch", "prepare", "wait", "engines"), marks, marks[1:], strict=False):
            if hop != "wait" and begun is not None and ended is not None:
                self._floors.took(hop, images, max(0.0, ended - begun), self._clock.monotonic())
