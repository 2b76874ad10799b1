"""What a refused client is told to do is what that client can do."""

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from serving.access.resolver import CaresResolver
from serving.promise import out_of_time
from tests.serving.access import pictures
from tests.serving.access.test_data_uri import data_uri
from tests.serving.rig import chat, rig
from toolkit.core.errors import CODES


def about(url: str) -> dict[str, Any]:
    part = {"type": "image_url", "image_url": {"url": url}}
    return chat(messages=[{"role": "user", "content": [part]}])


NARROW = pictures.saved(pictures.photo(2010, 10), "PNG")


@pytest.mark.parametrize(
    ("body", "code", "do"),
    [
        (about(data_uri(NARROW)), "image_invalid", "Crop"),
        (about("data:image/png;base64,@@@@"), "image_invalid", "standard base64"),
        (about("data:,hello"), "image_invalid", "base64,DATA"),
        (about(data_uri(pictures.scan_bomb())), "image_invalid", "baseline JPEG"),
        (about(data_uri(b"no image")), "image_invalid", "complete JPEG"),
        (chat(model="nope"), "not_found", "GET /v1/models"),
    ],
    ids=["ratio", "base64", "no base64", "scans", "no image", "model"],
)
def test_the_action_fits_the_mistake(tmp_path: Path, body: dict[str, Any], code: str, do: str) -> None:
    """Also when the refusal is remembered from the first time."""

    async def scenario() -> None:
        async with rig(tmp_path) as made:
            for _ in range(2):
                error = (await made.ask(body)).json["error"]

                assert error["code"] == code
                assert do in error["action"]

    asyncio.run(scenario())


def test_a_host_that_does_not_resolve_is_told_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not as a download that failed: its name is to be looked at."""

    async def nothing(_: CaresResolver, host: str, port: int) -> list[Any]:
        raise socket.gaierror(f"{host} is nowhere")

    async def scenario() -> None:
        async with rig(tmp_path) as made:
            error = (await made.ask(about("http://nohost.example/a.png"))).json["error"]

            assert error["code"] == "image_fetch_failed"
            assert "does not resolve" in error["message"]
            assert "host's name" in error["action"]

    monkeypatch.setattr(CaresResolver, "__call__", nothing)
    asyncio.run(scenario())


@pytest.mark.parametrize("hop", ["body", "fetch", "prepare"])
def test_a_budget_that_ends_before_the_engines_asks_for_less(hop: str) -> None:
    """Coming again later would end the same way."""
    action = out_of_time(hop, 1.0).action

    assert "smaller" in action
    assert "later" not in action
    assert "x-slo-class: batch" in action
    assert out_of_time("wait", 1.0).action == CODES["ttft_budget_exceeded"].action
