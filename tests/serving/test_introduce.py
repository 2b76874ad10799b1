"""Attached engines are what they are said to be, before anything is served."""

import asyncio

import pytest

from serving.launcher import _introduce
from serving.service import EngineEndpoint
from tests.serving.scripted_engine import engines, never
from toolkit.core.errors import EngineUnavailable, UsageFault
from toolkit.core.http.client import HttpClient


def introduce(role, says, bootstrap_answers=True):
    async def scenario():
        async with engines(decode_0=never, decode_1=never) as legs:
            engine, bootstrap = legs["decode-0"], legs["decode-1"]
            engine.pages = {"/model_info": says}
            bootstrap.pages = {"/health": {}}
            port = bootstrap.port
            if not bootstrap_answers:
                await bootstrap.stop()
            client = HttpClient(connect_timeout_s=1.0)
            try:
                await _introduce(
                    client,
                    EngineEndpoint(name=f"{role}-0", role=role, url=engine.endpoint.url, bootstrap_port=port),
                )
            finally:
                await client.close()

    asyncio.run(scenario())


def test_engines_in_their_roles_are_accepted():
    """Prefill with its bootstrap server, decode without one."""
    introduce("prefill", {"disaggregation_mode": "prefill"})
    introduce("decode", {"disaggregation_mode": "decode"})


@pytest.mark.parametrize("says", [{"disaggregation_mode": "decode"}, {"disaggregation_mode": "null"}, {}, []])
def test_an_engine_in_another_role_is_refused(says):
    """Swapped, the pair would answer every request with one token and call it complete."""
    with pytest.raises(UsageFault, match="the right way round"):
        introduce("prefill", says)


def test_a_prefill_without_its_bootstrap_server_names_the_option():
    """Decode would wait for it in vain, request after request."""
    with pytest.raises(EngineUnavailable, match="bootstrap_port=N"):
        introduce("prefill", {"disaggregation_mode": "prefill"}, bootstrap_answers=False)
