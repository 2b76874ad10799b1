"""The book of pairs: who takes which, by standing, load, weight and what a prefill has cached (pure; time is passed in, seconds).

Of the pairs in rotation (standing.py) with neither engine drained and the prefill in the request's pool (pools.py): those not
tried yet, beyond suspicion, not busy, as far as there are such; of their decodes the one with the least load; of its prefills
the one that affinity chooses (affinity.py), or the one with the least load where nothing would be gained by that.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Literal

from serving.affinity import Seen, chosen
from serving.attempt import Pair
from serving.instances import Instance, Taken, Want
from serving.pools import Pool, Pools
from serving.service import EngineEndpoint
from serving.standing import PairState, Standing
from toolkit.core.errors import EngineUnavailable

ANY = Want()

By = Literal["affinity", "spill", "new", "load"]
"""What chose a prefill: its cache; the next one's, as that was too full; the cache it is to be in; or load alone."""


class PairBook(Standing):
    """Standing, load and weight of every engine and pair. No I/O; mutated by events.

    affinity_bound: None without affinity. on_taken: told of each pair the request's pool and what chose the prefill.
    """

    def __init__(
        self,
        prefills: Iterable[EngineEndpoint],
        decodes: Iterable[EngineEndpoint],
        pools: Pools | None = None,
        affinity_bound: float | None = None,
        on_taken: Callable[[str, By], None] = lambda *_: None,
    ) -> None:
        super().__init__(prefills, decodes)
        self.instances = {name: Instance(engine) for name, engine in self.engines.items()}
        self.pools = pools or Pools((), (prefill for prefill, _ in self.pairs))
        self._on_taken = on_taken
        self._bound = affinity_bound
        self._seen = Seen()

    @property
    def ready(self) -> bool:
        """Whether any pair can serve."""
        return any(self.serves(state) for state in self.pairs.values())

    @property
    def serving_decodes(self) -> frozenset[str]:
        """Decodes that may get new requests now."""
        return frozenset(decode for (_, decode), state in self.pairs.items() if self.serves(state))

    def first_decodes(self, now: float) -> Mapping[str, float]:
        """Of those the ones that should get them, with their weights: of pairs beyond suspicion and not busy, as far as there
        are such."""
        ranks = {
            (state.suspect, state.busy_until > now, decode)
            for (_, decode), state in self.pairs.items()
            if self.serves(state)
        }
        best = min((rank[:2] for rank in ranks), default=None)
        return {decode: self.instances[decode].weight for *rank, decode in ranks if tuple(rank) == best}

    def serves(self, state: PairState) -> bool:
        """Whether it gets new requests."""
        return self.in_rotation(state) and not any(
            self.instances[engine.name].drained for engine in (state.pair.prefill, state.pair.decode)
        )

    def is_served(self, pool: Pool) -> bool:
        """Whether any pair can serve the pool's requests."""
        return bool(self._open_to(pool))

    def drain(self, engine: str, until: float | None = None) -> None:
        """It gets nothing new. until: when that is to end, if it is known. Raises KeyError for a name that is none."""
        self.instances[engine].drained = True
        self.instances[engine].drained_until = until

    def undrain(self, engine: str) -> None:
        """It gets new requests again: at first where nothing better serves, as nothing came out of it meanwhile that would
        tell how it is. Raises KeyError."""
        if self.instances[engine].drained:
            self.instances[engine].drained = False
            for state in self._pairs_of(engine):
                state.suspect = state.suspect or state.proven

    def weigh(self, engine: str, weight: float) -> None:
        """Its part of the work beside others of its role, 1 by default. Raises KeyError, and ValueError unless above 0."""
        if not 0 < weight < float("inf"):
            raise ValueError(f"the weight of {engine} must be above 0; to give it nothing, drain it")
        self.instances[engine].weight = weight

    def take(
        self,
        now: float,
        avoid: Collection[Pair] = (),
        *,
        decodes: Collection[str] | None = None,
        want: Want = ANY,
    ) -> Taken:
        """The best pair. avoid: comes last. decodes: those that it may be.

        Raises EngineUnavailable when there is none. Give it back with `give_back`.
        """
        pool = self.pools.of(want.workload_class)
        serving = self._open_to(pool, decodes)
        if not serving:
            raise self.unavailable(now, want)
        self.served_at = now
        state, by = self._best(serving, avoid, now, want)
        self._on_taken(pool.name, by)
        self.instances[state.pair.decode.name].add(want.held_tokens)
        self.instances[state.pair.prefill.name].add(want.prompt_tokens)
        state.in_flight += 1
        return Taken(state.pair, want)

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

    def has_other(
        self,
        tried: Collection[Pair],
        sure: bool = False,
        want: Want = ANY,
        decodes: Collection[str] | None = None,
    ) -> bool:
        """Whether a pair that serves it is left besides those; sure: one beyond suspicion; decodes: those that it may be."""
        return any(
            state.pair not in tried and not (sure and state.suspect)
            for state in self._open_to(self.pools.of(want.workload_class), decodes)
        )

    def unavailable(self, now: float, want: Want = ANY) -> EngineUnavailable:
        """The 503 of a request for which there is no pair, with the time after which there may be one."""
        pool = self.pools.of(want.workload_class)
        which = f" of the pool {pool.name!r}" if len(self.pools.all) > 1 else ""
        up = ", ".join(sorted(name for name in self.engines if self.is_up(name))) or "none"
        drained = ", ".join(sorted(name for name, one in self.instances.items() if one.drained))
        if (ends := self._drains_end(pool)) is not None:
            known = ends < float("inf")
            return EngineUnavailable(
                f"No prefill/decode pair{which} is ready: the operator took engines out"
                f"{f', for {ends - now:.0f} s more' if known else ''} (engines up: {up}; drained: {drained}).",
                retry_after_s=max(1.0, ends - now) if known else self.retry_after_s(now),
                action=""
                if known
                else "Send to another gateway, or wait: only the operator knows when it is back.",
            )
        return EngineUnavailable(
            f"No prefill/decode pair{which} is ready (engines up: {up}{'; drained: ' + drained if drained else ''}).",
            retry_after_s=self.retry_after_s(now),
        )

    def check(self) -> None:
        """Raise AssertionError unless every taken pair was given back."""
        held = {key: state.in_flight for key, state in self.pairs.items() if state.in_flight}
        assert not held, held
        assert all(one.tokens == one.requests == 0 for one in self.instances.values()), self.instances

    def _drains_end(self, pool: Pool) -> float | None:
        """When the first pair serves again that only the operator keeps from it: inf where that is not known; None without one."""
        ends = [
            max(one.ends for one in ours if one.drained)
            for (prefill, decode), state in self.pairs.items()
            if prefill in pool.prefills | pool.then and self.in_rotation(state) and not self.serves(state)
            for ours in [(self.instances[prefill], self.instances[decode])]
        ]
        return min(ends, default=None)

    def _open_to(self, pool: Pool, decodes: Collection[str] | None = None) -> list[PairState]:
        """Pairs that serve, of the pool, or of its fallback where its own do not."""
        for prefills in (pool.prefills, pool.then):
            found = [
                state
                for (prefill, decode), state in self.pairs.items()
                if prefill in prefills and (decodes is None or decode in decodes) and self.serves(state)
            ]
            if found:
                return found
        return []

    def _best(
        self, states: list[PairState], avoid: Collection[Pair], now: float, want: Want
    ) -> tuple[PairState, By]:
        def rank(state: PairState) -> tuple[bool, bool, bool]:
            return state.pair in avoid, state.suspect, state.busy_until > now

        def decode_load(state: PairState) -> tuple[float, float]:
            return self.instances[state.pair.decode.name].load_with(want.held_tokens)

        first = min(map(rank, states))
        decode = min((state for state in states if rank(state) == first), key=decode_load).pair.decode
        of_prefill = {
            state.pair.prefill.name: state
            for state in states
            if state.pair.decode == decode and rank(state) == first
        }
        prefills = [self.instances[name] for name in of_prefill]
        if want.key is not None and self._bound is not None and len(prefills) > 1:
            seen = self._seen.again(want.key)
            best, first_choice = chosen(want.key, prefills, want.prompt_tokens, self._bound, seen)
            by: By = "new" if not seen else "affinity" if first_choice else "spill"
            return of_prefill[best.endpoint.name], by
        best = min(
            prefills,
            key=lambda one: (one.load_with(want.prompt_tokens), of_prefill[one.endpoint.name].in_flight),
        )
        return of_prefill[best.endpoint.name], "load"

    def _leaves_prefill(self, taken: Taken) -> None:
        if not taken.prefilled:
            taken.prefilled = True
            self.instances[taken.pair.prefill.name].done(taken.want.prompt_tokens)
