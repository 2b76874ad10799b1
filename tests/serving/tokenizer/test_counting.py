"""The gateway's counter: exact where it can be, an estimate where not, never in the way."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from serving.config import ServeConfig
from serving.tokenizer.counting import TextCounter, TextTokens
from serving.tokenizer.errors import Uncountable
from tests.serving.rig import chat, records, rig
from tests.serving.tokenizer import folders
from toolkit.core.classify import tokens_in

CONFIG = ServeConfig()
HI = chat()
MISMATCHES, COMPARED = "toolkit_prompt_token_mismatch_total", "toolkit_prompts_compared_total"


def question(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


async def of(counter: TextCounter, document: dict[str, Any], text_bytes: int) -> TextTokens:
    try:
        return await counter.of(document, 0, text_bytes)
    finally:
        counter.close()


def test_a_folder_makes_counts_exact(tmp_path: Path) -> None:
    """Small prompts and large ones, and both agree."""
    folder = folders.qwen(tmp_path / "m")

    async def run() -> tuple[TextTokens, TextTokens]:
        counter = TextCounter()
        await counter.load(CONFIG, str(folder), "qwen2_5_vl")
        small = await counter.of(question("ship " * 10), 0, 50)
        return small, await of(counter, question("ship " * 1000), 5000)

    small, large = asyncio.run(run())

    assert small.exact and large.exact
    assert large.tokens > small.tokens > 10


@pytest.mark.parametrize(
    ("path", "settings"),
    [
        ("", {}),
        ("/nowhere", {}),
        (None, {"kind": "simulated"}),
        (None, {"extra_args": ["--chat-template=x.jinja"]}),
        (None, {"prefill": {"extra_args": ["--reasoning-parser", "qwen3"]}}),
    ],
)
def test_without_a_counter_there_is_the_estimate(
    tmp_path: Path, path: str | None, settings: dict[str, Any]
) -> None:
    """No folder, no engine with a tokenizer, or one that was told to make other prompts: never a refusal."""
    folder = str(folders.qwen(tmp_path / "m")) if path is None else path
    config = ServeConfig.model_validate({"engine": settings})

    async def run() -> TextTokens:
        counter = TextCounter()
        await counter.load(config, folder, "qwen2_5_vl")
        return await of(counter, HI, 300)

    assert asyncio.run(run()) == TextTokens(100, exact=False)


def test_a_broken_folder_is_told_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The gateway starts all the same."""
    folder = folders.qwen(tmp_path / "m", template="{% for")

    async def run() -> TextTokens:
        counter = TextCounter()
        await counter.load(CONFIG, str(folder), "qwen2_5_vl")
        return await of(counter, HI, 3)

    assert not asyncio.run(run()).exact
    assert "TemplateSyntaxError" in caplog.text


class Panic(BaseException):
    """As a panic in the tokenizer's Rust comes out."""


@pytest.mark.parametrize("error", [Uncountable("so"), ValueError("a bug"), Panic()])
@pytest.mark.parametrize("size", [9, 9000])
def test_what_cannot_be_counted_is_estimated(error: BaseException, size: int) -> None:
    """On the loop and beside it: a bug is logged and no reason to refuse anybody."""

    def fail(document: object, images: int, cpu_s: float) -> int:
        raise error

    async def run() -> TextTokens:
        counter = TextCounter()
        counter.use(fail)
        return await of(counter, HI, size)

    assert asyncio.run(run()) == TextTokens(size // 3, exact=False)


def test_a_large_prompt_is_counted_beside_the_loop() -> None:
    """By its text or by its messages and parts, long texts apart; small ones on the loop, with no hand-over."""
    where: list[str] = []

    def count(document: object, images: int, cpu_s: float) -> int:
        where.append(threading.current_thread().name)
        return 1

    async def run() -> None:
        counter = TextCounter()
        counter.use(count)
        await counter.of(HI, 0, 100)
        await counter.of(HI, 0, 10_000)
        await counter.of(HI, 0, 100_000)
        await counter.of({"messages": [{"content": ""}] * 100}, 0, 0)
        await counter.of({"messages": [{"content": [{}] * 100}]}, 0, 0)
        counter.close()

    asyncio.run(run())
    assert [name.partition("_")[0] for name in where] == ["MainThread", "short", "long", "short", "short"]


def test_what_is_too_large_is_not_counted_at_all() -> None:
    """Whatever makes it large."""

    async def run() -> list[TextTokens]:
        counter = TextCounter()
        counter.use(lambda document, images, cpu_s: 1)
        many = {"messages": [{"content": ""}] * 50_000}
        found = [await counter.of(HI, 0, 3_000_000), await counter.of(many, 0, 0)]
        counter.close()
        return found

    assert [found.exact for found in asyncio.run(run())] == [False, False]


@pytest.mark.parametrize("left_s", [0.05, 0.0, -1.0])
def test_a_count_is_not_waited_for_beyond_a_share_of_the_budget(left_s: float) -> None:
    """Behind others' long texts a request goes on with its estimate."""
    go = threading.Event()

    def slow(document: object, images: int, cpu_s: float) -> int:
        go.wait(10)
        return 1

    async def run() -> TextTokens:
        counter = TextCounter()
        counter.use(slow)
        try:
            return await counter.of(HI, 0, 9000, left_s)
        finally:
            go.set()
            counter.close()

    assert asyncio.run(run()) == TextTokens(tokens_in(9000), exact=False)


@pytest.mark.parametrize(("off", "mismatches"), [(0, 0.0), (5, 1.0)])
def test_a_difference_from_the_engines_count_is_a_metric(tmp_path: Path, off: int, mismatches: float) -> None:
    """Only where ours was exact; the record holds both."""

    async def run() -> list[float | None]:
        async with rig(tmp_path) as made:
            first = await made.ask(chat(stream=False))
            real = first.json["usage"]["prompt_tokens"]
            made.gateway.tokens.use(lambda document, images, cpu_s: real + off)
            await made.ask(chat(stream=False))
            return [
                made.metric(MISMATCHES, workload_class="text_only"),
                made.metric(COMPARED, workload_class="text_only", counted="exact"),
                made.metric(COMPARED, workload_class="text_only", counted="estimated"),
                made.metric("toolkit_prompt_token_difference_sum"),
            ]

    metrics = asyncio.run(run())

    record = records(tmp_path)[-1]
    assert metrics == [mismatches, 1.0, 1.0, float(off)]
    assert record["tokens_counted"]
    assert record["text_tokens_estimated"] == record["prompt_tokens"] + off
