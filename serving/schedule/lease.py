"""KV leases: no request enters the engines without the most KV that it may use, on one decode. Pure.

    lease = ceil((text + image + max_tokens) / page size) x n       pages; each of the n choices is a sequence of its own
    cap   = lease_cap x the pool                                    (the article's section 4.2: 15 %)

Admission (admit.py) is the one owner: it takes a lease when a request enters and releases it when it leaves. A decode whose
pool is not known (an attached engine that does not tell) serves without leases: no pool is ever made up.
"""

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from math import inf

from serving.schedule.pool import Pool, Report
from toolkit.core.errors import TooLarge

ANYWHERE = ""
"""In the place of a decode's name: no pool is known, so pairing is free to choose."""


@dataclass(frozen=True, slots=True)
class Need:
    """The most tokens that a request may hold: so many in each choice. prompt: the part of `each` that is not answer."""

    each: int
    choices: int = 1
    prompt: int = 0

    def pages(self, pool: Pool) -> int:
        return self.choices * pool.pages_of(self.each)


@dataclass(slots=True)
class Lease:
    """Who holds what: for each choice a decode and its pages there (0 where the pool is not known)."""

    need: Need
    places: list[tuple[str, int]] = field(default_factory=list)


class Leases:
    """All leases of one gateway. `reserved`: the decode whose free pages are kept for who is due (entry.py)."""

    def __init__(self, cap: float) -> None:
        self.cap = cap
        self.reserved: str | None = None
        self.closed: frozenset[str] = frozenset()  # decodes whose window is full (windows.py)
        self._serving: Mapping[str, float] = {}
        self._pools: dict[str, Pool] = {}
        self._silent: set[str] = set()  # decodes that do not tell
        self._open: tuple[str, ...] = ()  # decodes that serve and tell; none where one that serves does not
        self._held: dict[str, Lease] = {}
        self._bounds: Mapping[str, int] | None = None  # by decode; None: the pools are ours alone
        self._bounds_until = inf

    def __repr__(self) -> str:
        return f"<Leases {len(self._held)} held, {self._pools}>"

    @property
    def holders(self) -> AbstractSet[str]:
        """Keys of all who hold a lease."""
        return self._held.keys()

    @property
    def pools(self) -> Mapping[str, Pool]:
        """By decode, those that are known."""
        return self._pools

    @property
    def tokens(self) -> int:
        """Of all pools that are known."""
        return sum(pool.tokens for pool in self._pools.values())

    @property
    def binding(self) -> bool:
        """Whether entry asks for leases: every decode that serves tells its pool, or is yet to be asked, and one has told."""
        return bool(self._open)

    @property
    def settled(self) -> bool:
        """Whether any decode has been asked: it tells its pool, or does not."""
        return bool(self._pools or self._silent)

    def held(self) -> Iterable[tuple[str, Lease]]:
        """Every lease by its holder's key, as long as it is not changed."""
        return self._held.items()

    def serve(self, decodes: Mapping[str, float]) -> None:
        """Those may be chosen from now on, by their weights."""
        self._serving = decodes
        self._look()

    def report(self, decode: str, report: Report) -> None:
        """What an engine says of its pool; one of another size is a new pool."""
        pool = self._pools.get(decode)
        if pool is None or not pool.is_of(report):
            pool = self._pools[decode] = Pool(report)
            self._bind()
            for lease in self._held.values():
                each = pool.pages_of(lease.need.each)
                lease.places = [(name, each if name == decode else held) for name, held in lease.places]
                pool.lease(sum(held for name, held in lease.places if name == decode))
        pool.told(report)
        self._silent.discard(decode)
        self._look()

    def silent(self, decode: str) -> None:
        """The engine does not tell its pool."""
        self._silent.add(decode)
        if self._pools.pop(decode, None) is not None:
            for lease in self._held.values():
                lease.places = [(name, 0 if name == decode else pages) for name, pages in lease.places]
        self._look()

    def bound(self, pages: Mapping[str, int], until: float) -> None:
        """Of each decode's pool only so many pages are ours to lease from now on, and none from then on; none of those not
        named. What is leased beyond stays so."""
        self._bounds, self._bounds_until = pages, until
        self._bind()

    def lapse(self, now: float) -> None:
        """What was ours until now is no more."""
        if now >= self._bounds_until:
            self.bound({}, inf)

    def over(self, most: Mapping[str, int]) -> list[str]:
        """Whose leases have to end for no more pages of each pool to be leased than that, the newest first."""
        over = {name: pool.leased - most.get(name, 0) for name, pool in self._pools.items()}
        keys = []
        for key in reversed(self._held):
            places = self._held[key].places
            if any(pages and over.get(name, 0) > 0 for name, pages in places):
                keys.append(key)
                for name, pages in places:
                    over[name] = over.get(name, 0) - pages
        return keys

    def lease_of(self, key: str) -> Lease:
        """What a running request holds."""
        return self._held[key]

    def cap_pages(self, pool: Pool) -> int:
        """Pages that one lease may have there; at least one."""
        return max(1, int(self.cap * pool.rank_pages))

    def most_each(self, choices: int) -> int | None:
        """Tokens that each of so many choices may hold at most on some decode; None: nothing limits them."""
        each = (self.cap_pages(pool) // choices * pool.page_size for pool in self._choice())
        return max(each, default=None)

    def refuse_too_large(
        self, need: Need, *, estimated: bool = False, unasked: bool = False, action: str = ""
    ) -> None:
        """Raises TooLarge (kv_lease_exceeded), with the arithmetic, when no decode may ever give it that much.

        estimated: the prompt's tokens were. unasked: max_tokens is the default. action: what the client can do.
        """
        if not self._open or any(need.pages(pool) <= self.cap_pages(pool) for pool in self._choice()):
            return
        pool = max(self._choice(), key=self.cap_pages)
        prompt = f"{need.prompt} prompt tokens{' (estimated)' if estimated else ''}"
        answer = f"{need.each - need.prompt} max_tokens{' (the default: none was sent)' if unasked else ''}"
        most = self.cap_pages(pool)
        told = _arithmetic(f"{prompt} + {answer} = {need.each} tokens", need, pool, self.cap, most)
        raise TooLarge(told, code="kv_lease_exceeded", action=action)

    def fits(self, need: Need) -> bool:
        """Whether it may enter now."""
        return self.room()(need)

    def room(self, without: str | None = None, *, all_windows: bool = False) -> Callable[[Need], bool]:
        """What may enter now, to be asked of many as long as nothing changes. without: a decode that is not for them. all_windows:
        what could, were no window full."""
        if not self._open:
            return lambda _: True
        rooms = [
            (pool.page_size, pages)
            for name, pool in ((name, self._pools[name]) for name in self._open)
            if name != without
            and (all_windows or name not in self.closed)
            and (pages := min(pool.free, self.cap_pages(pool))) > 0
        ]
        most = max((size * pages for size, pages in rooms), default=0)

        def fits(need: Need) -> bool:
            return need.each * need.choices <= most and any(
                -(-need.each // size) * need.choices <= pages for size, pages in rooms
            )

        return fits

    def choose(self, need: Need, without: str | None = None) -> str:
        """Of the decodes where it fits the one of which it leaves the most free, by weight; ANYWHERE while entry asks for no
        leases."""
        fitting = [
            name
            for name in self._open
            if name != without and name not in self.closed and self._fits(need, self._pools[name])
        ]
        return min(fitting, key=lambda name: self._load(name, need), default=ANYWHERE)

    def reserve(self, need: Need) -> str | None:
        """Keep a decode's free pages for who is due: the one that is reserved already if it may ever give so much, else of
        those that may the one with the most free pages. None where none may."""
        pools = self._pools
        able = [name for name in self._open if need.pages(pools[name]) <= self.cap_pages(pools[name])]
        if self.reserved not in able:
            self.reserved = max(able, key=lambda name: pools[name].free, default=None)
        return self.reserved

    def at_once(self, decode: str) -> int:
        """How many of the largest leases fit there at once beside what others use; at least one."""
        pool = self._pools[decode]
        return max(1, pool.ours // self.cap_pages(pool))

    def elsewhere(self, decode: str) -> int:
        """Leases that hold nothing there."""
        return sum(all(name != decode for name, _ in lease.places) for lease in self._held.values())

    def take(self, key: str, need: Need, decode: str) -> None:
        pool = self._pools.get(decode)
        pages = pool.pages_of(need.each) if pool is not None else 0
        self._held[key] = Lease(need, [(decode, pages)] * need.choices)
        if pool is not None:
            pool.lease(need.pages(pool))

    def settle(self, key: str, choice: int, decode: str) -> None:
        """Where a choice goes that entered ANYWHERE: once leases are asked for it holds its pages there, even beyond what is free."""
        lease = self._held[key]
        pool = self._pools.get(decode) if self.binding else None
        pages = pool.pages_of(lease.need.each) if pool is not None else 0
        lease.places[choice] = (decode, pages)
        if pool is not None:
            pool.lease(pages)

    def move(self, key: str, choice: int, decode: str) -> bool:
        """One choice goes on at another decode; False, and nothing changes, where it does not fit."""
        if not self.open_to(key, choice, (decode,)):
            return False
        lease = self._held[key]
        at, held = lease.places[choice]
        if at == decode:
            return True
        there = self._pools.get(decode)
        pages = there.pages_of(lease.need.each) if there is not None else 0
        self._give_back(at, held)
        lease.places[choice] = (decode, pages)
        if there is not None:
            there.lease(pages)
        return True

    def place(self, key: str, choice: int = 0) -> str | None:
        """The decode on which a choice holds its lease; None where pairing is free to choose."""
        lease = self._held.get(key)
        return (lease.places[choice][0] or None) if lease is not None else None

    def open_to(self, key: str, choice: int, decodes: Iterable[str]) -> frozenset[str]:
        """Those of the decodes to which the choice could move, or where it is."""
        each, (at, _) = self._held[key].need.each, self._held[key].places[choice]
        pools = self._pools
        return frozenset(
            name
            for name in decodes
            if name == at
            or name not in pools
            or (name != self.reserved and pools[name].pages_of(each) <= pools[name].free)
        )

    def release(self, key: str) -> None:
        """Give all of it back; nothing happens where there is nothing."""
        lease = self._held.pop(key, None)
        for decode, pages in lease.places if lease is not None else ():
            self._give_back(decode, pages)

    def check(self) -> None:
        """Raise AssertionError unless every leased page is somebody's."""
        for name, pool in self._pools.items():
            held = sum(
                pages for lease in self._held.values() for decode, pages in lease.places if decode == name
            )
            assert pool.leased == held, (name, pool, held)
        assert all(len(lease.places) == lease.need.choices for lease in self._held.values()), self

    def _bind(self) -> None:
        for name, pool in self._pools.items():
            pool.bound = None if self._bounds is None else self._bounds.get(name, 0)

    def _look(self) -> None:
        told = not self._silent & self._serving.keys()
        self._open = tuple(sorted(self._serving.keys() & self._pools.keys())) if told else ()

    def _choice(self) -> Iterable[Pool]:
        return (self._pools[name] for name in self._open)

    def _load(self, name: str, need: Need) -> float:
        pool = self._pools[name]
        return (pool.pages - pool.free + need.pages(pool)) / pool.pages / self._serving[name]

    def _fits(self, need: Need, pool: Pool) -> bool:
        return need.pages(pool) <= min(pool.free, self.cap_pages(pool))

    def _give_back(self, decode: str, pages: int) -> None:
        if decode in self._pools:
            self._pools[decode].lease(-pages)


def _arithmetic(sum_of: str, need: Need, pool: Pool, cap: float, most: int) -> str:
    size = pool.page_size
    paged = f", {pool.pages_of(need.each) * size} in pages of {size}" if size > 1 else ""
    times = f"; times {need.choices} choices: {need.pages(pool) * size}" if need.choices > 1 else ""
    return (
        f"The request may use {sum_of}{paged}{times}; one request may have {most * size}, {100 * cap:g} % of the engine's KV pool"
        f" of {pool.rank_pages * size} tokens."
    )
