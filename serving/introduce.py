"""Engines that run already, asked who they are before anything is served."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from serving.access.grid import grid_for
from serving.config import ServeConfig
from serving.service import EngineEndpoint
from serving.topology import Plan, stand_in_model
from toolkit.core.errors import EngineUnavailable, UsageFault
from toolkit.core.http.client import HttpClient
from toolkit.core.http.errors import TransportError

ENGINE_ANSWER_S = 10.0


async def introduced(client: HttpClient, plan: Plan) -> Plan:
    """The plan with what its attached engines say of themselves: the model, and whether they are stand-ins.

    Raises EngineUnavailable where one does not answer, UsageFault where one has another role, or where the sizes of
    images cannot be told.
    """
    infos = await asyncio.gather(*(_introduce(client, engine) for engine in plan.engines))
    if not plan.model_name:
        plan = replace(plan, model_name=await _model_name(client, plan.engines[-1]))
    if not plan.model_path:
        plan = replace(plan, model_path=await asyncio.to_thread(_folder_here, infos[-1]))
    if any(info.get("simulated") for info in infos):
        plan = replace(plan, config=stand_ins(plan.config))
    grid_for(
        plan.config.model, Path(plan.model_path) if plan.model_path else None
    )  # else the gateway would fail
    return plan


def stand_ins(config: ServeConfig) -> ServeConfig:
    """The configuration in front of stand-ins: every place that tells what serves says that they are, by engine.kind."""
    engine = config.engine.model_copy(update={"kind": "simulated"})
    unsaid = config.model.family == "auto" and not config.model.path
    model = stand_in_model(config.model) if unsaid else config.model
    return config.model_copy(update={"engine": engine, "model": model})


async def _introduce(client: HttpClient, engine: EngineEndpoint) -> Mapping[str, Any]:
    """Its /model_info, once it is seen to be there, in the role it was given, and that decode can find a prefill.

    Raises EngineUnavailable, UsageFault.
    """
    info = in_its_role(engine, await _asked(client, engine, "/model_info"))
    if engine.role == "prefill":
        host = f"[{engine.bootstrap_host}]" if ":" in engine.bootstrap_host else engine.bootstrap_host
        bootstrap = engine.model_copy(update={"url": f"http://{host}:{engine.bootstrap_port}"})
        try:
            await _answer(client, bootstrap, "/health")
        except EngineUnavailable as error:
            raise EngineUnavailable(
                f"The bootstrap server of {engine.url} does not answer at port {engine.bootstrap_port}. "
                "Give the value of its --disaggregation-bootstrap-port as URL?bootstrap_port=N."
            ) from error
    return info


def in_its_role(engine: EngineEndpoint, info: object) -> Mapping[str, Any]:
    """Raises UsageFault unless the engine's /model_info names the role it was given."""
    mode = info.get("disaggregation_mode") if isinstance(info, dict) else None
    if not isinstance(info, dict) or mode != engine.role:
        raise UsageFault(
            f"{engine.url} was given as a {engine.role} engine, and says it runs as {mode or 'no SGLang engine'!r}. "
            "Are --attach-prefill and --attach-decode the right way round?"
        )
    return info


async def _model_name(client: HttpClient, engine: EngineEndpoint) -> str:
    """What an attached engine serves, by its own model list."""
    document = await _asked(client, engine, "/v1/models")
    try:
        return str(document["data"][0]["id"])
    except (LookupError, TypeError) as error:
        raise EngineUnavailable(
            f"{engine.name} at {engine.url} has no model list: is it an SGLang server?"
        ) from error


def _folder_here(info: Mapping[str, Any]) -> str:
    """Where an attached engine's model is, if that folder is on this machine too; else empty."""
    path = info.get("model_path")
    return path if isinstance(path, str) and (Path(path) / "config.json").is_file() else ""


async def _asked(client: HttpClient, engine: EngineEndpoint, path: str) -> Any:
    """A JSON page of an attached engine. Raises EngineUnavailable."""
    try:
        return orjson.loads(await _answer(client, engine, path))
    except ValueError as error:
        raise EngineUnavailable(
            f"{engine.name} at {engine.url}{path} did not answer JSON: is it an SGLang server?"
        ) from error


async def _answer(client: HttpClient, engine: EngineEndpoint, path: str) -> bytes:
    try:
        async with asyncio.timeout(ENGINE_ANSWER_S):
            response = await client.send("GET", f"{engine.url}{path}")
            return await response.read()
    except (TransportError, TimeoutError) as error:
        raise EngineUnavailable(f"{engine.name} at {engine.url} does not answer: {error}.") from error
