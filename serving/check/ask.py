"""Engines that run already, asked how they were started: GET /server_info, and nothing else."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from serving.service import EngineEndpoint
from toolkit.core.http.client import HttpClient
from toolkit.core.http.errors import TransportError

ANSWER_S = 5.0
MAX_BYTES = 4_000_000
LOCKED: Mapping[str, Any] = {"launch_command": "--api-key HIDDEN"}
"""What is known of an engine that answers 401."""


async def asked(engines: Iterable[EngineEndpoint]) -> Mapping[str, Mapping[str, Any]]:
    """What each says of itself, by name; those that say nothing are left out."""
    client = HttpClient(connect_timeout_s=ANSWER_S)
    try:
        told = await asyncio.gather(*(_ask(client, engine) for engine in engines))
    finally:
        await client.close()
    return {engine.name: one for engine, one in zip(engines, told, strict=True) if one is not None}


async def _ask(client: HttpClient, engine: EngineEndpoint) -> Mapping[str, Any] | None:
    try:
        async with asyncio.timeout(ANSWER_S):
            response = await client.send("GET", f"{engine.url}/server_info")
            try:
                body = await response.read(MAX_BYTES)
            finally:
                response.close()
        document = orjson.loads(body) if response.status == 200 else None
    except (TransportError, TimeoutError, ValueError):
        return None
    if response.status == 401:
        return LOCKED
    return document if isinstance(document, dict) else None
