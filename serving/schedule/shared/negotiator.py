"""The edge between a gateway's admission and the ledger: a task that renews, and a timer that ends what has lapsed."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from math import inf
from typing import Any, NamedTuple

from serving.schedule.admit import Admission, Moves
from serving.schedule.pool import Pool
from serving.schedule.retry import Fleet, Retries
from serving.schedule.shared.demand import demand_of
from serving.schedule.shared.fair import Demand, targets
from serving.schedule.shared.footing import CALL, RENEW, Footing, Standing
from serving.schedule.shared.ledger import Ledger, LedgerFault
from serving.schedule.shared.words import Other, Part, Said
from toolkit.core import names
from toolkit.core.clock import Clock
from toolkit.core.errors import EngineUnavailable

log = logging.getLogger("toolkit.gateway")

WORKS, FAILS = "works", "fails: "

LEAVE_S = 0.5
"""How long close() waits for the server."""


class State(NamedTuple):
    """For people: by what right this gateway leases, how many gateways share as far as it knows, tokens by decode that it may
    lease now, and how the server does: works, unknown (not asked yet), or fails and why."""

    standing: Standing
    gateways: int
    tokens: Mapping[str, int]
    server: str
    clash: str = ""  # how sharing fails though the server works

    @property
    def told(self) -> str:
        """How sharing does: works, unknown, or fails and why."""
        return f"{FAILS}{self.clash}" if self.clash and self.server == WORKS else self.server

    def document(self) -> dict[str, Any]:
        """Its part of /readyz."""
        return {"standing": self.standing.value, "gateways": self.gateways, "tokens": dict(self.tokens)}

    def show(self, gauge: Callable[..., None]) -> None:
        """Its metrics."""
        gauge(names.LEDGER_UP, self.server == WORKS)
        gauge(names.LEDGER_GATEWAYS, self.gateways)
        for standing in Standing:
            gauge(names.LEDGER_STANDING, standing is self.standing, standing=standing.value)
        for decode, tokens in self.tokens.items():
            gauge(names.KV_GRANT, tokens, decode=decode)


class Negotiator:
    """Keeps the admission within this gateway's grants. Owns the ledger. Used from one event loop."""

    def __init__(
        self,
        gateway: str,
        ledger: Ledger,
        footing: Footing,
        admission: Admission,
        retries: Retries,
        urls: Mapping[str, str],
        clock: Clock,
        on_moves: Callable[[Moves], None],
        revoke: Callable[[list[str]], None],
        on_renewal: Callable[[str], None],
        where: str,
        identities: Mapping[str, str],
    ) -> None:
        """urls: by decode, what all gateways call it; identities: what it says it is, as far as it does. revoke is told the requests that must end at once, again and again
        until they have; on_renewal how each renewal went: answered, late or failed."""
        self._gateway = gateway
        self._ledger = ledger
        self._footing = footing
        self._admission = admission
        self._retries = retries
        self._urls = urls
        self._clock = clock
        self._on_moves = on_moves
        self._revoke = revoke
        self._on_renewal = on_renewal
        self._where = where
        self._identities = identities
        self._clash = ""
        self._others: Mapping[str, Other] = {}
        self._want: dict[str, Part] = {}
        self._sizes: dict[str, Pool] = {}  # by URL: as it was last known
        self._server = "unknown"
        self._began = False  # whether there was anything to lease from under this grant
        self._timer: asyncio.TimerHandle | None = None
        admission.leases.bound({}, inf)

    @property
    def state(self) -> State:
        now = self._clock.monotonic()
        usable, _ = self._footing.usable(now)
        pools = self._admission.leases.pools
        tokens = {name: usable.get(url, 0) * pools[name].page_size for name, url in self._known().items()}
        return State(self._footing.standing(now)[0], 1 + len(self._others), tokens, self._server, self._clash)

    @property
    def ready(self) -> bool:
        """Whether there is anything to lease from; decodes that do not tell their size are not shared, those not asked yet may be."""
        now = self._clock.monotonic()
        usable, _ = self._footing.usable(now)
        right = self._footing.standing(now)[0] is not Standing.NONE
        leases = self._admission.leases
        return any(usable.values()) or (right and leases.settled and not leases.binding)

    def refuse(self) -> None:
        """Raises EngineUnavailable (no_grant), with Retry-After, while a request would wait for what nobody grants: there is nothing
        to lease, and no grant that has had something to grow again from."""
        if self._footing.standing(self._clock.monotonic())[0] is not Standing.GRANTED:
            self._began = False
        if not self.ready and not self._began:
            raise EngineUnavailable(
                "This gateway has no part yet of the KV pools that it shares with other gateways.",
                code="no_grant",
                retry_after_s=max(1.0, self._footing.life_s),
                internal=f"shared ledger: {self._server}",
            )

    async def run(self) -> None:
        """Renews until it is cancelled."""
        while True:
            began = self._clock.monotonic()
            answered = await self._renew(began)
            pause_s = (RENEW if answered and not self._hurry() else CALL) * self._footing.life_s
            await asyncio.sleep(max(0.0, began + pause_s - self._clock.monotonic()))

    async def close(self) -> None:
        """To be called when no request is open: what was held is the others' at once. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
        try:
            async with asyncio.timeout(LEAVE_S):
                await self._ledger.leave()
        except (TimeoutError, LedgerFault):
            log.debug("shared ledger: not left in order")
        await self._ledger.close()

    async def _renew(self, now: float) -> bool:
        """Whether it was answered in time."""
        footing, in_time = self._footing, False
        said = self._said(now)
        held = self._held()
        pages = {url: self._sizes[url].pages for url in held}
        ask = footing.ask(now, pages, held, self._want, said)
        self.hold()
        try:
            async with asyncio.timeout(CALL * footing.life_s):
                answer = await self._ledger.renew(ask)
        except (TimeoutError, LedgerFault) as fault:
            self._on_renewal("failed")
            footing.failed()
            self._tell(str(fault) or "no answer in time")
        else:
            self._on_renewal("late" if answer.late else "answered")
            footing.answered(answer, self._clock.monotonic())
            if in_time := not answer.late:
                self._others = answer.others
                self._want = self._right(ask.said)
                self._tell("")
                self._compare(ask.said.engines)
        self._share_retries()
        self.hold()
        return in_time

    def hold(self) -> None:
        """Bring the admission within what may be used now, and again when that changes. What others should have of it is not
        leased again."""
        now = self._clock.monotonic()
        usable, until = self._footing.usable(now)
        granted = self._footing.standing(now)[0] is Standing.GRANTED
        self._began = any(usable.values()) or (self._began and granted)
        most = {name: usable.get(url, 0) for name, url in self._urls.items()}
        due = self._want if granted else {}
        ours = {
            name: min(most[name], due[url].granted) if url in due else most[name]
            for name, url in self._urls.items()
        }
        self._on_moves(self._admission.bound(ours, until, now))
        if over := self._admission.leases.over(most):
            self._revoke(over)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if until < inf:
            self._timer = asyncio.get_running_loop().call_later(max(0.0, until - now), self.hold)

    def _held(self) -> dict[str, int]:
        """Pages leased of each pool that is known, or was when requests went there that still run: an engine that is silent for
        a moment goes on with them."""
        leases, held = self._admission.leases, dict[str, int]()
        for name, url in self._urls.items():
            pool = leases.pools.get(name)
            if pool is not None:
                self._sizes[url], held[url] = pool, pool.leased
            elif url in self._sizes:
                each = (lease.need.each for _, lease in leases.held() for at, _ in lease.places if at == name)
                if pages := sum(map(self._sizes[url].pages_of, each)):
                    held[url] = pages
        return held

    def _known(self) -> dict[str, str]:
        return {name: url for name, url in self._urls.items() if name in self._admission.leases.pools}

    def _said(self, now: float) -> Said:
        demand = demand_of(self._admission, now)
        requests, retries = self._retries.recent(now)
        engines = {url: one for name, url in self._urls.items() if (one := self._identities.get(name))}
        return Said({self._urls[name]: one for name, one in demand.items()}, requests, retries, engines)

    def _right(self, said: Said) -> dict[str, Part]:
        """What this gateway should have of each pool, by what all say."""
        right = {}
        for name, url in self._known().items():
            pages = self._admission.leases.pools[name].pages
            asked = {self._gateway: said.demand.get(url, Demand())}
            for other, told in self._others.items():
                if url in told.parts:
                    asked[other] = told.said.demand.get(url, Demand())
            part = targets(pages, asked, self._admission.weights)[self._gateway]
            right[url] = Part(part, pages // len(asked))
        return right

    def _hurry(self) -> bool:
        """Whether somebody here waits for KV, or somebody elsewhere for what this gateway has."""
        usable, _ = self._footing.usable(self._clock.monotonic())
        owes = any(usable.get(url, 0) > part.granted for url, part in self._want.items())
        nothing = bool(self._admission.leases.pools) and not any(usable.values())
        return owes or nothing or self._admission.lacking > 0

    def _share_retries(self) -> None:
        members = sorted([self._gateway, *self._others])
        requests = sum(one.said.requests for one in self._others.values())
        retries = sum(one.said.retries for one in self._others.values())
        self._retries.share(
            Fleet(members.index(self._gateway), len(members), requests, retries, self._server == WORKS)
        )

    def _compare(self, ours: Mapping[str, str]) -> None:
        """An engine that has another URL elsewhere is given out twice: it is said, once."""
        urls = {identity: url for url, identity in ours.items()}
        theirs = [pair for one in self._others.values() for pair in one.said.engines.items()]
        twice = [(urls[identity], url) for url, identity in theirs if urls.get(identity, url) != url]
        if twice and not self._clash:
            told = "; ".join(
                f"{here} here is {there} at another gateway" for here, there in sorted(set(twice))
            )
            log.warning("shared ledger %s: %s: both give out its whole pool. Write the same URL at all", self._where, told)  # fmt: skip
        self._clash = "another gateway has one of these engines by another URL, and gives out its whole pool too" if twice else ""  # fmt: skip

    def _tell(self, fault: str) -> None:
        failed = self._server.startswith(FAILS)
        if fault and not failed:
            right = self._footing.standing(self._clock.monotonic())[0] is not Standing.NONE
            then = (
                "no request waits for it"
                if right
                else "until it grants a part, requests are refused (503 no_grant)"
            )
            log.warning("shared ledger %s: %s; %s", self._where, fault, then)
        elif not fault and failed:
            log.info("shared ledger %s answers again", self._where)
        self._server = f"{FAILS}{fault}" if fault else WORKS
