"""The book of pairs: who takes which, by standing, load and weight (pure; time is passed in, seconds).

Of the pairs in rotation (standing.py) with neither engine drained, the best is one not yet tried, beyond suspicion, not
busy; then with the least load on its decode, then on its prefill (instances.py).
"""

from collections.abc import Collection, Iterable

from serving.attempt import Pair
from serving.instances import Instance, Taken, Want
from serving.service import EngineEndpoint
from serving.standing import PairState, Standing
from toolkit.core.errors import EngineUnavailable

ANY = Want()


class PairBook(Standing):
    """Standing, load and weight of every engine and pair. No I/O; mutated by events."""

    def __init__(self, prefills: Iterable[EngineEndpoint], decodes: Iterable[EngineEndpoint]) -> None:
        super().__init__(prefills, decodes)
        self.instances = {name: Instance(engine) for name, engine in self.engines.items()}

    @property
    def ready(self) -> bool:
        """Whether any pair can serve."""
        return any(self.serves(state) for state in self.pairs.values())

    def serves(self, state: PairState) -> bool:
        """Whether it gets new requests."""
        return self.in_rotation(state) and not any(
            self.instances[engine.name].drained for engine in (state.pair.prefill, state.pair.decode)
        )

    def drain(self, engine: str) -> None:
        """It gets nothing new. Raises KeyError for a name that is none."""
        self.instances[engine].drained = True

    def undrain(self, engine: str) -> None:
        """It gets new requests again. Raises KeyError."""
        self.instances[engine].drained = False

    def weigh(self, engine: str, weight: float) -> None:
        """Its part of the work beside others of its role, 1 by default. Raises KeyError, and ValueError unless above 0."""
        if not 0 < weight < float("inf"):
            raise ValueError(f"the weight of {engine} must be above 0; to give it nothing, drain it")
        self.instances[engine].weight = weight

    def take(
        self, now: float, avoid: Collection[Pair] = (), *, decode: str | None = None, want: Want = ANY
    ) -> Taken:
        """The best pair. avoid: comes last. decode: the only one that it may be.

        Raises EngineUnavailable when there is none. Give it back with `give_back`.
        """
        serving = [
            state
            for state in self.pairs.values()
            if self.serves(state) and decode in (None, state.pair.decode.name)
        ]
        if not serving:
            raise self.unavailable(now)
        self.served_at = now
        pair = min(
            serving,
            key=lambda s: (
                s.pair in avoid,
                s.suspect,
                s.busy_until > now,
                self.instances[s.pair.decode.name].load_with(want.held_tokens),
                self.instances[s.pair.prefill.name].load_with(want.prompt_tokens),
                s.in_flight,
            ),
        ).pair
        self.instances[pair.decode.name].add(want.held_tokens)
        self.instances[pair.prefill.name].add(want.prompt_tokens)
        self._state(pair).in_flight += 1
        return Taken(pair, want)

    def prefilled(self, taken: Taken) -> None:
        """Its KV cache went from prefill to decode."""
        self.handed_over(taken.pair)
        self._leaves_prefill(taken)

    def give_back(self, taken: Taken) -> None:
        """The attempt has ended, however it did."""
        assert not taken.given_back, f"{taken.pair.name} was given back twice"
        taken.given_back = True
        self._leaves_prefill(taken)
        self.instances[taken.pair.decode.name].done(taken.want.held_tokens)
        self._state(taken.pair).in_flight -= 1

    def has_other(self, tried: Collection[Pair], sure: bool = False) -> bool:
        """Whether a pair that serves is left besides those; sure: one beyond suspicion."""
        return any(
            self.serves(state) and state.pair not in tried and not (sure and state.suspect)
            for state in self.pairs.values()
        )

    def unavailable(self, now: float) -> EngineUnavailable:
        """The 503 of a request for which there is no pair, with the time after which there may be one."""
        up = ", ".join(sorted(name for name in self.engines if self.is_up(name))) or "none"
        drained = ", ".join(sorted(name for name, one in self.instances.items() if one.drained))
        return EngineUnavailable(
            f"No prefill/decode pair is ready (engines up: {up}{'; drained: ' + drained if drained else ''}).",
            retry_after_s=self.retry_after_s(now),
        )

    def check(self) -> None:
        """Raise AssertionError unless every taken pair was given back."""
        held = {key: state.in_flight for key, state in self.pairs.items() if state.in_flight}
        assert not held, held
        assert all(one.tokens == one.requests == 0 for one in self.instances.values()), self.instances

    def _leaves_prefill(self, taken: Taken) -> None:
        if not taken.prefilled:
            taken.prefilled = True
            self.instances[taken.pair.prefill.name].done(taken.want.prompt_tokens)
