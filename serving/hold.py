"""A running request's KV lease while its attempts are made: where they may go, and the lease goes along."""

from collections.abc import Callable, Collection

from serving.schedule.admit import Admission, Moves
from toolkit.core.clock import Clock


class Hold:
    """One request's; choices by their number. on_moves gets what a move sets in motion."""

    def __init__(
        self, admission: Admission, key: str, clock: Clock, on_moves: Callable[[Moves], None]
    ) -> None:
        self._admission = admission
        self._key = key
        self._clock = clock
        self._on_moves = on_moves

    def decode(self, choice: int) -> str | None:
        """Where the lease is; None where pairing is free to choose."""
        return self._admission.leases.place(self._key, choice)

    def open_to(self, choice: int, decodes: Collection[str]) -> Collection[str]:
        """Those of the decodes where there is room for it."""
        if self.decode(choice) is None:
            return decodes
        return self._admission.leases.open_to(self._key, choice, decodes)

    def settle(self, choice: int, decode: str) -> None:
        """An attempt goes to that decode, one of open_to's."""
        at = self.decode(choice)
        if at is None:
            self._admission.leases.settle(self._key, choice, decode)
        if at in (None, decode):
            return
        moves = self._admission.move(self._key, choice, decode, self._clock.monotonic())
        assert moves is not None, f"{decode} has no room for {self._key}"
        self._on_moves(moves)
