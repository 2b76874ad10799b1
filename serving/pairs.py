"""Which pairs may serve: a book of engines and pairs (pure), fed by a prober (I/O).

An engine is up while it answers /ready. A pair is in rotation once one real image went through it, KV transfer included:
/health of SGLang uses a fake transfer and proves nothing about the pair (http_server.py:218). A broken connection takes
the engine out at once. FAILURES_IN_A_ROW failures with nothing good between them make a pair suspect: it is probed while it
goes on serving, and leaves the rotation only if the probe fails too. A client whose requests make an engine answer 500 must
not be able to take the pair from everybody else.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from serving.dispatch import Pair
from serving.service import EngineEndpoint
from toolkit.core.errors import EngineUnavailable

FAILURES_IN_A_ROW = 3


@dataclass(slots=True)
class PairState:
    """One pair's standing."""

    pair: Pair
    proven: bool = False
    failures: int = 0
    suspect: bool = False
    in_flight: int = 0
    moves: int = 0


class PairBook:
    """Standing of every engine and pair. No I/O; mutated by events."""

    def __init__(self, prefills: Iterable[EngineEndpoint], decodes: Iterable[EngineEndpoint]) -> None:
        decodes = tuple(decodes)
        self.engines = {engine.name: engine for engine in (*prefills, *decodes)}
        self.pairs = {
            (prefill.name, decode.name): PairState(Pair(prefill, decode))
            for prefill in self.engines.values()
            if prefill.role == "prefill"
            for decode in decodes
        }
        self._up: dict[str, bool] = dict.fromkeys(self.engines, False)

    def is_up(self, engine: str) -> bool:
        return self._up[engine]

    def is_proven(self, pair: Pair) -> bool:
        return self._state(pair).proven

    def in_rotation(self, state: PairState) -> bool:
        return state.proven and self._up[state.pair.prefill.name] and self._up[state.pair.decode.name]

    @property
    def ready(self) -> bool:
        """Whether any pair can serve."""
        return any(self.in_rotation(state) for state in self.pairs.values())

    def engine_seen(self, engine: str, up: bool) -> None:
        """A look at an engine. One that went down must prove its pairs again: it may have come back as a new process."""
        if not up and self._up[engine]:
            for state in self._pairs_of(engine):
                state.proven = False
        self._up[engine] = up

    def unproven(self) -> list[Pair]:
        """Pairs whose engines are up and that have to prove themselves: for the first time, again, or on suspicion."""
        return [
            state.pair
            for state in self.pairs.values()
            if (state.suspect or not state.proven)
            and self._up[state.pair.prefill.name]
            and self._up[state.pair.decode.name]
        ]

    def proven(self, pair: Pair) -> None:
        state = self._state(pair)
        state.proven, state.failures, state.suspect = True, 0, False

    def disproved(self, pair: Pair) -> None:
        """The probe did not get through."""
        state = self._state(pair)
        state.proven = state.suspect = False

    def take(self) -> Pair:
        """The pair in rotation with the fewest requests on its decode, then on its prefill, then in itself.

        Raises EngineUnavailable when there is none. Give it back with `give_back`.
        """
        serving = [state for state in self.pairs.values() if self.in_rotation(state)]
        if not serving:
            up = sorted(name for name, is_up in self._up.items() if is_up)
            raise EngineUnavailable(
                f"No prefill/decode pair is ready (engines up: {', '.join(up) or 'none'}).", retry_after_s=2.0
            )
        load = self._load()
        chosen = min(
            serving, key=lambda s: (load[s.pair.decode.name], load[s.pair.prefill.name], s.in_flight)
        )
        chosen.in_flight += 1
        return chosen.pair

    def give_back(self, pair: Pair) -> None:
        state = self._state(pair)
        assert state.in_flight > 0, f"{pair.name} was given back more often than taken"
        state.in_flight -= 1

    def moved(self, pair: Pair) -> None:
        """A token or an answer came out of the pair: it works, however slowly."""
        state = self._state(pair)
        state.failures = 0
        state.moves += 1

    def moves(self, pair: Pair) -> int:
        """How often the pair has moved; unchanged over a time in which it should have: it is stuck."""
        return self._state(pair).moves

    def failed(self, pair: Pair) -> None:
        """An attempt failed, and it is not known whose fault that was."""
        state = self._state(pair)
        state.failures += 1
        if state.failures >= FAILURES_IN_A_ROW:
            state.suspect = True

    def check(self) -> None:
        """Raise AssertionError unless every taken pair was given back."""
        assert all(state.in_flight == 0 for state in self.pairs.values()), {
            key: s.in_flight for key, s in self.pairs.items()
        }

    def _state(self, pair: Pair) -> PairState:
        return self.pairs[pair.prefill.name, pair.decode.name]

    def _pairs_of(self, engine: str) -> list[PairState]:
        return [state for key, state in self.pairs.items() if engine in key]

    def _load(self) -> dict[str, int]:
        load = dict.fromkeys(self.engines, 0)
        for (prefill, decode), state in self.pairs.items():
            load[prefill] += state.in_flight
            load[decode] += state.in_flight
        return load
