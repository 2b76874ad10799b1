"""Attached engines are what they are said to be, before anything is served."""

import asyncio

import pytest

from serving.launcher import _introduce, in_its_role
from serving.service import EngineEndpoint
from tests.serving.stand_ins import stand_ins
from toolkit.core.errors import EngineUnavailable, UsageFault
from toolkit.core.http.client import HttpClient


def introduce(role, runs_as, bootstrap_answers=True):
    async def scenario():
        async with stand_ins(**{f"{runs_as}_0": {}, "prefill_1": {}}) as legs:
            engine, other = legs[f"{runs_as}-0"], legs["prefill-1"]
            port = other.stand_in.bootstrap_port
            if not bootstrap_answers:
                await other.stand_in.stop()
            client = HttpClient(connect_timeout_s=1.0)
            try:
                await _introduce(
                    client,
                    EngineEndpoint(name=f"{role}-0", role=role, url=engine.stand_in.url, bootstrap_port=port),
                )
            finally:
                await client.close()

    asyncio.run(scenario())


def test_engines_in_their_roles_are_accepted():
    """Prefill with its bootstrap server, decode without one."""
    introduce("prefill", "prefill")
    introduce("decode", "decode")


@pytest.mark.parametrize("runs_as", ["decode", "unified"])
def test_an_engine_in_another_role_is_refused(runs_as):
    """Swapped, the pair would answer every request with one token and call it complete."""
    with pytest.raises(UsageFault, match="the right way round"):
        introduce("prefill", runs_as)


@pytest.mark.parametrize("says", [{"disaggregation_mode": "decode"}, {"disaggregation_mode": "null"}, {}, []])
def test_whatever_does_not_name_the_role_is_refused(says):
    """A server of another make may answer anything."""
    engine = EngineEndpoint(name="prefill-0", role="prefill", url="http://127.0.0.1:1", bootstrap_port=1)

    with pytest.raises(UsageFault, match="the right way round"):
        in_its_role(engine, says)


def test_a_prefill_without_its_bootstrap_server_names_the_option():
    """Decode would wait for it in vain, request after request."""
    with pytest.raises(EngineUnavailable, match="bootstrap_port=N"):
        introduce("prefill", "prefill", bootstrap_answers=False)
