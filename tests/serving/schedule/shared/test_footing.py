"""However gateways, messages and the server fare, no page of a pool is given twice."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.schedule.shared.footing import CALL, DRIFT, OUTAGE, RENEW, Footing, Standing
from serving.schedule.shared.words import Ask, Part, Said, answer_of
from tests.serving.schedule.shared.model import Ledger
from tests.serving.schedule.shared.world import LIFE_S, PAGES, POOL, Trouble, World

FOR_ALL_OR_NONE = {
    "nothing": Trouble(),
    "freezes": Trouble(freeze=0.01, crash=0.002),
    "outages": Trouble(outage=0.02),
    "steps of the server's clock": Trouble(outage=0.005, step=0.02),
    "everything": Trouble(loss=0.15, vain_in_a_row=2, outage=0.02, freeze=0.003, crash=0.002, step=0.002),
}
"""The server is away for all gateways or for none; of one gateway's asks, at most two in a row are lost by chance."""
ANY = Trouble(loss=0.4, outage=0.005, freeze=0.003, crash=0.002, step=0.002)


def run(seed: int, gateways: int, trouble: Trouble, alone: bool, steps: int) -> World:
    world = World(seed, gateways, trouble, alone)
    for _ in range(steps):
        world.step()
        world.check()
    return world


@pytest.mark.slow
@pytest.mark.parametrize("trouble", FOR_ALL_OR_NONE.values(), ids=FOR_ALL_OR_NONE.keys())
@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 10_000), gateways=st.integers(1, 4))
def test_nothing_is_given_twice(seed: int, gateways: int, trouble: Trouble) -> None:
    """Crashes, freezes, lost and late messages, gateways' clocks set and running differently, a server killed, emptied, frozen."""
    run(seed, gateways, trouble, alone=True, steps=250)


@pytest.mark.slow
@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 10_000), gateways=st.integers(1, 4))
def test_without_alone_nothing_is_given_twice_whoever_is_cut_off(seed: int, gateways: int) -> None:
    run(seed, gateways, ANY, alone=False, steps=250)


@pytest.mark.proof
@pytest.mark.parametrize("name", [*FOR_ALL_OR_NONE, "any"])
def test_nothing_is_given_twice_in_many_runs(name: str) -> None:
    trouble = FOR_ALL_OR_NONE.get(name, ANY)
    for seed in range(100):
        run(seed, 1 + seed % 5, trouble, alone=name != "any", steps=500)


def test_what_is_quiet_is_given_out_and_used() -> None:
    """Otherwise all of the above would hold of gateways that never get anything."""
    world = run(3, 3, Trouble(), alone=True, steps=300)

    assert sum(gateway.usable(world.at) for gateway in world.gateways) > 0.8 * PAGES
    assert not any(gateway.lapses for gateway in world.gateways)


class Alone:
    """One gateway at its ledger, step by step."""

    def __init__(self, alone: bool = True) -> None:
        self.footing = Footing(LIFE_S, alone)
        self.ledger = Ledger()
        self.now = 100.0

    def ask(self, held: int = 0) -> Ask:
        want = {POOL: Part(PAGES, PAGES // 2)}
        return self.footing.ask(self.now, {POOL: PAGES}, {POOL: held}, want, Said())

    def renew(self) -> None:
        told = self.ledger.renew("me", self.ask().text(), int(1000 * self.now))
        self.footing.answered(answer_of(told), self.now)

    def settle(self) -> None:
        """Until the ledger gives."""
        for _ in range(8):
            self.renew()
            self.now += RENEW * LIFE_S
        self.renew()

    def in_vain(self, for_s: float) -> None:
        ends = self.now + for_s
        while self.now < ends:
            self.ask()
            self.footing.failed()
            self.now += CALL * LIFE_S

    @property
    def standing(self) -> tuple[Standing, int]:
        return self.footing.standing(self.now)[0], self.footing.usable(self.now)[0].get(POOL, 0)


def test_a_new_ledger_gives_nothing_for_one_life() -> None:
    """Gateways that knew the last one have to tell first what they hold."""
    one = Alone()
    one.renew()
    assert one.standing == (Standing.GRANTED, 0)
    one.settle()
    assert one.standing == (Standing.GRANTED, PAGES)


def test_a_server_that_is_away_costs_the_rest_of_the_pool_and_no_more() -> None:
    """At first the grant holds, then what is no more than grant and share, then the share, for as long as it takes."""
    one = Alone()
    one.settle()
    one.in_vain(0.9 * LIFE_S)
    assert one.standing == (Standing.GRANTED, PAGES)
    one.in_vain(0.2 * LIFE_S)
    assert one.standing == (Standing.ALONE, PAGES // 2)
    one.in_vain(100 * LIFE_S)
    assert one.standing == (Standing.ALONE, PAGES // 2)

    one.renew()
    assert one.standing == (Standing.GRANTED, PAGES // 2)
    one.settle()
    assert one.standing == (Standing.GRANTED, PAGES)


def test_without_alone_a_gateway_that_is_cut_off_has_nothing() -> None:
    one = Alone(alone=False)
    one.settle()
    one.in_vain(1.1 * LIFE_S)
    assert one.standing == (Standing.ALONE, 0)


@pytest.mark.parametrize(("vain_s", "frozen_s"), [(0.0, 1.0), (0.3, 0.7)])
def test_a_gateway_frozen_past_its_grant_wakes_with_nothing_and_begins_anew(
    vain_s: float, frozen_s: float
) -> None:
    """A few vain asks before prove no outage: the others may have gone on, and have its pages by now."""
    one = Alone()
    one.settle()
    one.in_vain(vain_s)
    epoch = one.footing._epoch
    one.now += frozen_s * LIFE_S
    assert one.standing == (Standing.NONE, 0)

    one.renew()
    assert one.footing._epoch > epoch


def test_vain_asks_before_and_after_a_freeze_are_not_one_outage() -> None:
    """The server may have served the others between them."""
    one = Alone()
    one.settle()
    one.in_vain(CALL * LIFE_S)
    one.now += 0.7 * LIFE_S
    one.in_vain(3 * CALL * LIFE_S)
    assert one.standing == (Standing.NONE, 0)


def test_a_gateway_counts_its_grant_shorter_than_the_ledger_does() -> None:
    """From when it asked, not from when it was answered, and with a clock that may run slow."""
    one = Alone()
    one.settle()
    ask = one.ask()
    one.now += 0.5
    one.footing.answered(answer_of(one.ledger.renew("me", ask.text(), int(1000 * one.now))), one.now)

    assert one.footing.standing(one.now)[1] == pytest.approx(one.now - 0.5 + LIFE_S * (1 - DRIFT))


def test_the_right_to_a_share_comes_before_the_grant_ends() -> None:
    """Or every outage would end requests."""
    last_ask_s = RENEW + OUTAGE + CALL
    assert last_ask_s + CALL < 1 - DRIFT


def test_who_owes_pages_stops_using_them_before_it_tells() -> None:
    """The answer may be lost; what others see is never less than what is used."""
    one = Alone()
    one.settle()
    one.footing.ask(one.now, {POOL: PAGES}, {POOL: 200}, {POOL: Part(100, 100)}, Said())

    assert one.standing == (Standing.GRANTED, 200)
