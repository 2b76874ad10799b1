"""Gateways and engines are restarted one after the other under load, and no request is lost."""

import asyncio

import pytest

from tests.serving.gateways import (
    STREAMING,
    AnyGateway,
    Balancer,
    GatewayHere,
    GatewayProcess,
    eventually,
    gateways,
    load,
)
from tests.serving.stand_ins import Leg, stand_ins

DECODE = "decode-1"


async def roll_gateway(gateway: AnyGateway) -> None:
    assert await gateway.end() == 0
    await gateway.start()


async def roll_decode(made: list[AnyGateway], legs: dict[str, Leg]) -> Leg:
    """As an operator does: drained everywhere, stopped when it has nothing left, back when its pairs are proven."""
    old = legs[DECODE]
    for gateway in made:
        await gateway.set(**{f"instance.{DECODE}.drained": True})
    for gateway in made:

        async def empty(gateway: AnyGateway = gateway) -> bool:
            return (await gateway.instance(DECODE))["requests"] == 0

        await eventually(empty)
    await old.stand_in.stop()
    new = Leg(DECODE, {}, port=old.stand_in.port, **STREAMING)
    await new.stand_in.start()
    for gateway in made:

        async def down_or_up(gateway: AnyGateway = gateway) -> bool:
            return bool((await gateway.instance(DECODE))["up"])

        await eventually(down_or_up)
        await gateway.set(**{f"instance.{DECODE}.drained": False})
    for gateway in made:

        async def serves(gateway: AnyGateway = gateway) -> bool:
            return await gateway.serves(DECODE)

        await eventually(serves)
    return new


async def rolled(tmp_path, kind, rounds, per_s):
    slow = {"settings": STREAMING}
    async with (
        stand_ins(prefill_0={}, decode_0=slow, decode_1=slow) as legs,
        gateways(kind, tmp_path, legs) as made,
    ):
        balancer = Balancer([one.url for one in made])
        done = asyncio.Event()
        asking = asyncio.create_task(load(balancer.ask, per_s, done))
        try:
            for _ in range(rounds):
                for gateway in made:
                    await roll_gateway(gateway)
                    await asyncio.sleep(0.2)
                new = legs[DECODE] = await roll_decode(made, legs)
                await asyncio.sleep(0.3)
                assert new.calls, "the new decode gets work"
        finally:
            done.set()
            answers = await asking
            await balancer.close()
    return answers


def none_lost(answers):
    """Every answer is whole, or it is told what each gateway said."""
    assert not (broken := [one.text for one in answers if not one.whole]), "\n".join(broken)


@pytest.mark.slow
def test_two_gateways_and_a_decode_are_restarted_under_load(tmp_path):
    """Every answer is whole: streams that were open ended before their gateway did, and others went elsewhere."""
    answers = asyncio.run(rolled(tmp_path, GatewayHere, rounds=1, per_s=20))

    assert len(answers) > 20
    none_lost(answers)


@pytest.mark.proof
def test_as_processes_they_are_restarted_again_and_again(tmp_path):
    """The same, three times over, at more than twice the load."""
    answers = asyncio.run(rolled(tmp_path, GatewayProcess, rounds=3, per_s=50))

    assert len(answers) > 500
    none_lost(answers)
    assert max(one.tries for one in answers) <= 3
