"""The script on a real server does what its model does, and says nothing it should not."""

import asyncio
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from serving.schedule.shared import ledger as module
from serving.schedule.shared.ledger import LedgerFault, ServerLedger
from serving.schedule.shared.script import SCRIPT
from serving.schedule.shared.words import Answer, Ask, Part, Said, Wanted, answer_of
from tests.serving.access.valkey import Valkey
from tests.serving.schedule.shared.model import Ledger

BOOK = "mm-serving-toolkit:ledger:t"
TIMED = SCRIPT.replace("redis.call('TIME')", "{ARGV[3], ARGV[4]}")
"""The same with its time passed in."""


@pytest.fixture(scope="module")
def server() -> Iterator[Valkey]:
    with Valkey() as server:
        yield server


def ask(number: int = 1, epoch: int = 0, life_ms: int = 800, **pools: tuple[int, int, int]) -> Ask:
    """Pools as (all, keep, want)."""
    wanted = {
        name: Wanted(pages, Part(keep, keep // 2), Part(want, want // 2))
        for name, (pages, keep, want) in pools.items()
    }
    return Ask(life_ms, epoch, number, 0, wanted, Said(requests=number))


async def at(server: Valkey, gateway: str, *asks: Ask) -> list[Answer]:
    ledger = ServerLedger(server.url, "t", gateway, 5.0)
    try:
        return [await ledger.renew(one) for one in asks]
    finally:
        await ledger.close()


async def renewed(server: Valkey, gateway: str, want: int, number: int = 1, epoch: int = 0) -> Answer:
    """As a gateway goes on, until it has what it wants."""
    async with asyncio.timeout(20):
        granted = 0
        while True:
            (answer,) = await at(server, gateway, ask(number, epoch, p=(1000, granted, want)))
            granted = answer.parts["p"].granted
            if granted == want:
                return answer
            number, epoch = number + 1, answer.epoch
            await asyncio.sleep(0.08)


@pytest.mark.slow
def test_the_script_is_its_model(server: Valkey) -> None:
    """Random calls at random times by gateways that know their epoch or not, in order or late, time that stands and jumps."""
    dice = random.Random(7)
    model = Ledger()
    now = 1_700_000_000_000
    epochs = dict.fromkeys("abc", 0)
    numbers = dict.fromkeys("abc", 0)

    async def main() -> None:
        from serving.redis_client import redis_client

        client = redis_client(server.url, 1, 10)
        await client.delete(BOOK)
        nonlocal now
        for _ in range(200):
            now += dice.choice((0, 1, 20, 80, 120, 200, 500, -700) if dice.random() < 0.3 else (20, 60))
            gateway = dice.choice("abc")
            numbers[gateway] += dice.choice((1, 1, 1, 0))
            epoch = dice.choice((epochs[gateway],) * 5 + (3,))
            pools = {
                f"p{n}": (1000, dice.choice((0, 100, 400)), dice.choice((0, 300, 1000)))
                for n in range(dice.randint(0, 2))
            }
            asked = ask(numbers[gateway], epoch, **pools)
            by = dice.choice((0, now + 10, now - 10 if dice.random() < 0.2 else 0))
            text = json.dumps([400, epoch, asked.number, by, *json.loads(asked.text())[4:]])
            if dice.random() < 0.02:
                model.leave(gateway)
                await client.eval(module.LEAVE, 1, BOOK, gateway)
            told = await client.eval(TIMED, 1, BOOK, gateway, text, now // 1000, now % 1000 * 1000)
            expected = answer_of(model.renew(gateway, text, now))

            assert answer_of(told) == expected
            epochs[gateway] = expected.epoch or epochs[gateway]
        await client.aclose()

    asyncio.run(main())


@pytest.mark.slow
def test_what_one_has_another_cannot_get(server: Valkey) -> None:
    """By the server's own clock; until what it has expires."""

    async def main() -> None:
        server.ask("DEL", BOOK)
        one = await renewed(server, "one", 800)  # the ledger is new: for one life nobody gets anything
        assert one.parts["p"].granted == 800

        (other,) = await at(server, "two", ask(1, p=(1000, 0, 1000)))
        assert other.parts["p"].granted == 200
        assert other.others["one"].said.requests > 0
        other = await renewed(server, "two", 1000, 2, other.epoch)
        assert not other.others

    asyncio.run(main())


def test_a_gateway_with_another_ttl_gets_nothing(server: Valkey) -> None:
    async def main() -> None:
        server.ask("DEL", BOOK)
        await at(server, "one", ask(p=(1000, 0, 800)))
        with pytest.raises(LedgerFault, match="another ttl_s"):
            await at(server, "two", ask(life_ms=900, p=(1000, 0, 800)))

    asyncio.run(main())


@pytest.mark.parametrize(
    "found", ["", "no JSON", "[]", "{}", '{"ends": "x"}', '{"ends": 9e99, "parts": 3}', "\xff"]
)
def test_what_no_gateway_wrote_is_taken_out(server: Valkey, found: str) -> None:
    """Whoever may write there may write anything: the ledger goes on."""

    async def main() -> None:
        server.ask("DEL", BOOK)
        for name in ("*", "other"):
            server.ask("HSET", BOOK, name, found)
        (answer,) = await at(server, "one", ask(p=(1000, 10, 800)))

        assert answer.parts["p"].granted == 10
        assert answer.others == {}

    asyncio.run(main())


@pytest.mark.parametrize(
    "said",
    [
        None,
        5,
        "",
        "[]",
        "null",
        '{"demand": {"p": 1}}',
        '{"demand":{},"requests":1e999,"retries":0}',
        "[" * 100_000,
    ],
)
def test_what_no_gateway_says_counts_for_nothing(said: Any) -> None:
    told = {"now": 1, "epoch": 1, "lapsed": False, "parts": {}, "others": {"x": {"parts": {}, "said": said}}}

    assert answer_of(json.dumps(told)).others["x"].said == Said()


@pytest.mark.parametrize("parts", [{"d": "x"}, {"d": [1]}, {"d": [{}, 1]}, {"d": [1e999, 1]}, [1], None])
def test_parts_that_are_none_are_taken_for_nothing(parts: object) -> None:
    """One gateway's nonsense on the server is no fault of the server, and sends no other one away from it."""
    other = {"parts": parts, "said": ""}
    told = {"now": 1, "epoch": 2, "lapsed": False, "parts": {"d": [3, 4]}, "others": {"x": other}}

    answer = answer_of(json.dumps(told))

    assert answer.parts == {"d": Part(3, 4)}
    assert answer.others["x"].parts == {}


@pytest.mark.parametrize(
    "text", ["", "5", "{}", '{"now": 1}', '{"now": 1, "epoch": 1, "lapsed": 0, "parts": {"p": 3}}']
)
def test_no_answer_of_a_ledger_is_a_fault(text: str) -> None:
    with pytest.raises(ValueError, match=r"^"):
        answer_of(text)


def test_a_server_that_is_not_there_is_a_fault() -> None:
    async def main() -> None:
        ledger = ServerLedger("unix:///nowhere/at/all", "t", "one", 1.0)
        with pytest.raises(LedgerFault):
            await ledger.renew(ask())
        await ledger.close()

    asyncio.run(main())
