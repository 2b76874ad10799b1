"""Attached engines are what they are said to be, before anything is served."""

import asyncio

import pytest

from serving import introduce as introducing
from serving.config import ServeConfig
from serving.introduce import _introduce, in_its_role, introduced
from serving.service import EngineEndpoint
from serving.topology import Plan
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


def attached(settings, monkeypatch=None, own_words=None):
    """The plan in front of a pair of stand-ins; own_words: what their /model_info says in place of that they are."""

    async def scenario():
        async with stand_ins(prefill_0={}, decode_0={}) as legs:
            engines = tuple(leg.endpoint for leg in legs.values())
            plan = Plan(ServeConfig.model_validate(settings), (), engines, "", "", "http://127.0.0.1:1")
            client = HttpClient()
            try:
                return await introduced(client, plan)
            finally:
                await client.close()

    if own_words is not None:
        asked = introducing._asked

        async def edited(client, engine, path):
            document = await asked(client, engine, path)
            return {**document, **own_words} if path == "/model_info" else document

        monkeypatch.setattr(introducing, "_asked", edited)
    return asyncio.run(scenario())


def test_attached_stand_ins_are_told_from_engines_by_their_own_word():
    """So the banner says SIMULATED, and how images are sized needs not be said."""
    plan = attached({})

    assert plan.config.engine.kind == "simulated"
    assert plan.config.model.family == "qwen2_5_vl"


def test_all_that_an_attached_model_leaves_open_is_asked_for_at_once(monkeypatch):
    """Not the family first and its pixels at the next try; and before anything is started."""
    real = {"simulated": False, "model_path": "/models/elsewhere"}
    with pytest.raises(UsageFault) as refused:
        attached({}, monkeypatch, real)

    for option in ("model.family=", "model.min_pixels=", "model.max_pixels="):
        assert f"--set {option}" in refused.value.message
    said = {"model": {"family": "qwen2_5_vl", "min_pixels": 3136, "max_pixels": 200704}}
    assert attached(said, monkeypatch, real).config.engine.kind == "auto"
