"""Some gateways, a ledger and what may happen to them, in steps of virtual time."""

import random
from dataclasses import dataclass, field

from serving.schedule.shared.fair import Demand, targets
from serving.schedule.shared.footing import CALL, RENEW, Footing, Standing
from serving.schedule.shared.words import NOTHING, Ask, Part, Said, answer_of
from tests.serving.schedule.shared.model import Ledger

POOL = "http://decode"
PAGES = 1000
LIFE_S = 1.0
STEP_S = LIFE_S / 50


@dataclass
class Gateway:
    """A Footing and what the edge around it does. rate, skew: its own clock."""

    name: str
    rate: float
    skew: float
    alone: bool = True
    held: int = 0
    wish: int = 0
    frozen_until: float = 0.0
    next_ask: float = 0.0
    vain: int = 0
    gave_up_at: float | None = None  # of the call in flight
    want: Part = NOTHING
    lapses: int = 0
    footing: Footing = field(init=False)

    def __post_init__(self) -> None:
        self.footing = Footing(LIFE_S, self.alone)

    def clock(self, at: float) -> float:
        return self.skew + self.rate * at

    def usable(self, at: float) -> int:
        return self.footing.usable(self.clock(at))[0].get(POOL, 0)


@dataclass
class Trouble:
    """What may happen, as chances per step, but for `loss`: per message."""

    loss: float = 0.0
    vain_in_a_row: int = 1_000_000
    outage: float = 0.0
    freeze: float = 0.0
    crash: float = 0.0
    step: float = 0.0
    """The server's clock is set, by more than a life."""


class World:
    """Runs in steps. `check` holds after each."""

    def __init__(self, seed: int, gateways: int, trouble: Trouble, alone: bool = True) -> None:
        self.random = random.Random(seed)
        self.trouble = trouble
        self.alone = alone
        self.at = 0.0
        self.ledger = Ledger()
        self.ahead_s = 1e6
        self.down_until = 0.0
        self.quiet = 0.5
        self.up_since = 0.0
        self.names = 0
        self.gateways = [self.gateway() for _ in range(gateways)]
        self.travelling: list[tuple[float, str, Ask]] = []
        self.coming: list[tuple[float, Gateway, int, str]] = []

    def gateway(self) -> Gateway:
        self.names += 1
        rate, skew = self.random.uniform(0.99, 1.01), self.random.uniform(-1e5, 1e5)
        return Gateway(f"g{self.names}", rate, skew, self.alone)

    def step(self) -> None:
        self.at += STEP_S
        self._happen()
        self._serve()
        for gateway in self.gateways:
            if gateway.frozen_until <= self.at:
                self._live(gateway)

    def check(self) -> None:
        """Nobody who is awake holds more than it may, and all together may hold no more than there is."""
        for gateway in self.gateways:
            assert gateway.frozen_until > self.at or gateway.held <= gateway.usable(self.at), gateway
        may = {gateway.name: gateway.usable(self.at) for gateway in self.gateways}
        assert sum(may.values()) <= PAGES, (self.at, may)
        for which in (0, 1):
            assert sum(one["parts"].get(POOL, (0, 0))[which] for one in self.ledger.book.values()) <= PAGES

    def _happen(self) -> None:
        dice, trouble = self.random, self.trouble
        if self.at > self.up_since + LIFE_S * self.quiet and dice.random() < trouble.outage:
            self.down_until = self.up_since = self.at + dice.choice((0.3, 0.7, 1.5, 3)) * LIFE_S
            if dice.random() < 0.4:
                self.ledger = Ledger()
            if dice.random() < 0.5:
                self.travelling = []
        if dice.random() < trouble.step:
            self.ahead_s += dice.choice((-1, 1)) * dice.uniform(1.1, 4) * LIFE_S
        for gateway in list(self.gateways):
            if dice.random() < trouble.freeze:
                gateway.frozen_until = self.at + dice.choice((0.3, 0.9, 3)) * dice.uniform(0.8, 1.2) * LIFE_S
            if dice.random() < trouble.crash:
                self.gateways.remove(gateway)
                if dice.random() < 0.3 and self.at > self.down_until:
                    self.ledger.leave(gateway.name)
                self.gateways.append(self.gateway())
            if dice.random() < 0.03:
                gateway.wish = dice.choice((0, 10, 300, 5000))

    def _serve(self) -> None:
        if self.at < self.down_until:
            return
        now = int(1000 * (self.at + self.ahead_s))
        for one in [one for one in self.travelling if one[0] <= self.at]:
            self.travelling.remove(one)
            _, name, ask = one
            answer = self.ledger.renew(name, ask.text(), now)
            gateway = next((g for g in self.gateways if g.name == name), None)
            if gateway is not None and not self._lost(gateway):
                self.coming.append((self.at + self._travel(), gateway, ask.number, answer))

    def _live(self, gateway: Gateway) -> None:
        now, footing = gateway.clock(self.at), gateway.footing
        for one in [one for one in self.coming if one[1] is gateway and one[0] <= self.at]:
            self.coming.remove(one)
            if gateway.gave_up_at is not None and one[2] == footing._number:
                gateway.gave_up_at, gateway.vain = None, 0
                answer = answer_of(one[3])
                footing.answered(answer, now)
                asked = {gateway.name: Demand({"": gateway.wish})}
                asked |= {
                    name: other.said.demand.get(POOL, Demand()) for name, other in answer.others.items()
                }
                gateway.want = Part(targets(PAGES, asked, {})[gateway.name], PAGES // len(asked))
        if gateway.gave_up_at is not None and self.at >= gateway.gave_up_at:
            gateway.gave_up_at = None
            gateway.vain += 1
            footing.failed()
            gateway.next_ask = self.at
        may = gateway.usable(self.at)
        gateway.lapses += gateway.held > may
        gateway.held = min(gateway.held, may)
        gateway.held = min(may, gateway.wish, gateway.held + self.random.randint(0, 200))
        if gateway.gave_up_at is None and self.at >= gateway.next_ask:
            said = Said({POOL: Demand({"": gateway.wish})})
            ask = footing.ask(now, {POOL: PAGES}, {POOL: gateway.held}, {POOL: gateway.want}, said)
            gateway.gave_up_at = self.at + CALL * LIFE_S
            gateway.next_ask = self.at + RENEW * LIFE_S
            if not self._lost(gateway):
                self.travelling.append((self.at + self._travel(), gateway.name, ask))

    def _lost(self, gateway: Gateway) -> bool:
        return gateway.vain < self.trouble.vain_in_a_row and self.random.random() < self.trouble.loss

    def _travel(self) -> float:
        return self.random.choice((0.0, STEP_S, STEP_S, 40 * STEP_S if self.trouble.loss > 0.3 else STEP_S))

    def alone_now(self) -> int:
        return sum(g.footing.standing(g.clock(self.at))[0] is Standing.ALONE for g in self.gateways)
