"""Which pairs may serve: the standing of engines and pairs (pure; time is passed in, seconds), fed by a prober (I/O).

An engine is up while it answers /ready. A pair is in rotation once one real image went through it, KV transfer included:
/health of SGLang uses a fake transfer and proves nothing about the pair (http_server.py:218). Here is the breaker of
each pair, and the prober's images are its half-open probes:

    IN ROTATION   FAILURES_IN_A_ROW failures, one failed transfer, or silence: SUSPECT
    SUSPECT       serves where nothing better does, is probed: passes -> IN ROTATION, fails -> OUT
    OUT           is probed: passes -> IN ROTATION.  An engine whose connection broke puts its pairs here at once

A client whose requests make an engine answer 500 must not be able to take the pair from everybody else, so only a probe or
a broken connection does. Load is no fault: 429 and 503 only send others first for a while, and a pair out of which anything
moves is slow, not broken.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from serving.attempt import Pair
from serving.service import EngineEndpoint

FAILURES_IN_A_ROW = 3
LATE_PROBES = 3

BLACKLIST_FIRST_S = 30.0
BLACKLIST_LONGEST_S = 300.0
"""After one failed transfer SGLang's prefill gives that decode nothing until its own probe works: after 30 s, then twice as
long each time (mooncake/conn.py:3141)."""

BUSY_S = 1.0
BUSY_LONGEST_S = 8.0
"""How long others come first after a 429 or 503; doubled each time until something comes out of the pair again."""

OUT_LEAST_S = 2.0
OUT_LONGEST_S = 30.0
"""Bounds of the Retry-After while no pair is in rotation: an outage of unknown length is expected to last as long again."""


@dataclass(slots=True)
class PairState:
    """One pair's standing."""

    pair: Pair
    proven: bool = False
    loaded: bool = False  # it has served since its engines came up, so nothing is loaded any more
    failures: int = 0
    late: int = 0
    suspect: bool = False
    in_flight: int = 0
    moves: int = 0
    transfer_failed_at: float | None = None
    busy_until: float = 0.0
    busy_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Moves:
    """How often something has come out of a pair and of its engines; unchanged over a time: stuck."""

    pair: int
    prefill: int
    decode: int


class Standing:
    """Of every engine and pair. No I/O; mutated by events."""

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
        self._moves: dict[str, int] = dict.fromkeys(self.engines, 0)
        self.served_at: float | None = None

    def is_up(self, engine: str) -> bool:
        return self._up[engine]

    def is_loaded(self, pair: Pair) -> bool:
        """Whether the pair has served since its engines came up."""
        return self._state(pair).loaded

    def is_suspect(self, pair: Pair) -> bool:
        return self._state(pair).suspect

    def in_rotation(self, state: PairState) -> bool:
        return state.proven and self._both_up(state)

    def engine_seen(self, engine: str, up: bool) -> None:
        """A look at an engine. One that went down must prove its pairs again: it may have come back as a new process."""
        if not up and self._up[engine]:
            for state in self._pairs_of(engine):
                state.proven = state.loaded = False
                state.transfer_failed_at = None
        self._up[engine] = up

    def unproven(self) -> list[Pair]:
        """Pairs whose engines are up and that have to prove themselves: for the first time, again, or on suspicion."""
        return [
            state.pair
            for state in self.pairs.values()
            if (state.suspect or not state.proven) and self._both_up(state)
        ]

    def proven(self, pair: Pair) -> None:
        state = self._state(pair)
        state.proven = state.loaded = True
        state.failures, state.late, state.suspect, state.transfer_failed_at = 0, 0, False, None

    def disproved(self, pair: Pair) -> None:
        """The probe did not get through."""
        state = self._state(pair)
        state.proven = state.suspect = False
        state.late = 0

    def probe_late(self, pair: Pair) -> None:
        """The probe had no answer in time though both engines work: load, until nothing at all comes out for LATE_PROBES."""
        state = self._state(pair)
        state.late += 1
        if state.late >= LATE_PROBES:
            self.disproved(pair)

    def retry_after_s(self, now: float) -> float:
        """When a pair may serve again: after SGLang's next own probe where a failed transfer is the cause, else as long as
        none has served by now."""
        waits = [
            blacklisted_s(now - state.transfer_failed_at)
            for state in self.pairs.values()
            if state.transfer_failed_at is not None and self._both_up(state)
        ]
        if waits:
            return OUT_LEAST_S + min(waits)
        out_s = 0.0 if self.served_at is None else now - self.served_at
        return min(OUT_LONGEST_S, max(OUT_LEAST_S, out_s))

    def handed_over(self, pair: Pair) -> None:
        """A KV cache went from prefill to decode."""
        self._state(pair).moves += 1
        self._moves[pair.prefill.name] += 1

    def moved(self, pair: Pair) -> None:
        """A token or an answer came out of the pair: it works, however slowly."""
        state = self._state(pair)
        state.failures, state.late, state.busy_s = 0, 0, 0.0
        state.moves += 1
        self._moves[pair.decode.name] += 1

    def moves(self, pair: Pair) -> Moves:
        """To be compared with a later one."""
        return Moves(self._state(pair).moves, self._moves[pair.prefill.name], self._moves[pair.decode.name])

    def engine_moves(self, engine: str) -> int:
        """How often something has come out of the engine."""
        return self._moves[engine]

    def failed(self, pair: Pair) -> None:
        """An attempt failed, and it is not known whose fault that was."""
        state = self._state(pair)
        state.failures += 1
        if state.failures >= FAILURES_IN_A_ROW:
            state.suspect = True

    def transfer_failed(self, pair: Pair, now: float) -> None:
        """The KV cache did not arrive: SGLang may have blacklisted the session, which one probe shows."""
        state = self._state(pair)
        state.suspect = True
        if state.transfer_failed_at is None:
            state.transfer_failed_at = now

    def quiet(self, pair: Pair, since: Moves, prefilled: bool) -> bool:
        """Whether nothing has come out of the pair since; prefilled: but for the asking attempt's own KV cache."""
        return self._state(pair).moves == since.pair + prefilled

    def silent(self, pair: Pair, since: Moves, prefilled: bool) -> None:
        """A quiet pair has kept an attempt for too long: suspect, with all pairs of an engine that nothing else came out of."""
        now = self.moves(pair)
        stuck = {pair.decode.name} if now.decode == since.decode else set()
        if not prefilled and now.prefill == since.prefill:
            stuck.add(pair.prefill.name)
        for key, state in self.pairs.items():
            if state.pair == pair or stuck & set(key):
                state.suspect = state.suspect or state.proven

    def busy(self, pair: Pair, now: float) -> None:
        """The pair has no room."""
        state = self._state(pair)
        if now >= state.busy_until:
            state.busy_s = min(BUSY_LONGEST_S, max(BUSY_S, 2 * state.busy_s))
            state.busy_until = now + state.busy_s

    def _both_up(self, state: PairState) -> bool:
        return self._up[state.pair.prefill.name] and self._up[state.pair.decode.name]

    def _state(self, pair: Pair) -> PairState:
        return self.pairs[pair.prefill.name, pair.decode.name]

    def _pairs_of(self, engine: str) -> list[PairState]:
        return [state for key, state in self.pairs.items() if engine in key]


def blacklisted_s(since_s: float) -> float:
    """Seconds until SGLang's next own probe of a session whose transfer failed so long ago."""
    wait_s, at_s = BLACKLIST_FIRST_S, BLACKLIST_FIRST_S
    while at_s <= since_s:
        wait_s = min(2 * wait_s, BLACKLIST_LONGEST_S)
        at_s += wait_s
    return at_s - since_s
