"""Prefill/decode over Mooncake behind the gateway says what one SGLang server says, and the KV cache really moves."""

import asyncio
import base64
import io
import os
import subprocess
from pathlib import Path

import httpx
import pytest
from PIL import Image

from serving.access.fetch import Fetcher
from serving.access.grid import grid_for
from serving.access.prepare import Access
from serving.access.workers import DecodePool
from serving.engines.commands import Host, launches, ports_needed
from tests.live.service import PHOTOS, Running, end_group, free_port, wait_for
from toolkit.core.clock import SystemClock

pytestmark = pytest.mark.engine

GREEDY = {"max_tokens": 16, "temperature": 0, "ignore_eos": True, "logprobs": True}
SAME_NUMBER = 1e-3


def uri(data: bytes) -> str:
    return "data:image/jpeg;base64," + base64.b64encode(data).decode()


def large_photo() -> str:
    out = io.BytesIO()
    Image.open(PHOTOS / "flower.jpg").resize((4000, 3000), Image.Resampling.BICUBIC).save(
        out, "JPEG", quality=90
    )
    return uri(out.getvalue())


CHINA, FLOWER = (uri((PHOTOS / name).read_bytes()) for name in ("china.jpg", "flower.jpg"))
CASES = {
    "text": [],
    "one image": [CHINA],
    "two images": [CHINA, FLOWER],
    "a 4000x3000 photo": [large_photo()],
}


def question(urls):
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return [
        {
            "role": "user",
            "content": [*parts, {"type": "text", "text": "Describe the picture in one short sentence."}],
        }
    ]


@pytest.fixture(scope="module")
def monolith(running: Running, tmp_path_factory):
    """The same wheel, model and flags as the prefill engine, without the disaggregation."""
    config = running.service.config
    python = Path(__file__).resolve().parents[2] / ".venv-engine/bin/python"
    host = Host(gpu=False, python=str(python))
    ports = [free_port() for _ in range(ports_needed(config.engine, host))]
    launch = launches(config, host, running.service.model_path, running.service.model_name, ports)[0]
    argv: list[str] = []
    words = iter(launch.argv)
    for word in words:
        if word.startswith("--disaggregation"):
            next(words)
        else:
            argv.append(word)
    log = tmp_path_factory.mktemp("monolith") / "engine.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            argv,
            env={**os.environ, **launch.env},
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    url = launch.endpoint.url
    try:
        wait_for(
            "the monolithic server", lambda: httpx.get(f"{url}/ready", timeout=2).status_code == 200, 180
        )
        yield url
    except AssertionError:
        print(log.read_text()[-3000:])
        raise
    finally:
        end_group(process)


def prepared(running: Running, urls):
    """What the gateway hands over for these images, made by the same code."""

    async def main():
        config, clock = running.service.config, SystemClock()
        pool = DecodePool(config.access)
        access = Access(
            config.access,
            grid_for(config.model, Path(running.service.model_path)),
            Fetcher(config.access, pool, clock),
            pool,
            clock,
        )
        try:
            return [image.data_uri for image in (await access.prepare(urls, clock.monotonic() + 60)).images]
        finally:
            await access.close()
            pool.close()

    return asyncio.run(main())


def answer(url, model, messages):
    response = httpx.post(
        f"{url}/v1/chat/completions",
        json={"model": model, "messages": messages, **GREEDY},
        timeout=120,
        headers={"x-slo-class": "batch"},
    )
    assert response.status_code == 200, response.text
    document = response.json()
    choice = document["choices"][0]
    return (
        choice["message"]["content"],
        [token["logprob"] for token in choice["logprobs"]["content"]],
        document["usage"]["prompt_tokens"],
    )


@pytest.mark.parametrize("case", CASES)
def test_the_answer_equals_the_monolithic_servers(running, monolith, case):
    """Same tokens, same log-probabilities, same prompt length, given the same prepared images."""
    model = running.service.model_name
    ours, our_logprobs, our_prompt = answer(running.url, model, question(CASES[case]))
    theirs, their_logprobs, their_prompt = answer(monolith, model, question(prepared(running, CASES[case])))

    assert ours == theirs
    assert our_prompt == their_prompt
    assert our_logprobs == pytest.approx(their_logprobs, abs=SAME_NUMBER)


def test_another_photo_gives_other_logprobs(running):
    """The pixels reach the model: were they dropped, both answers would be equal."""
    model = running.service.model_name
    _, china, _ = answer(running.url, model, question([CHINA]))
    _, flower, _ = answer(running.url, model, question([FLOWER]))

    assert max(abs(a - b) for a, b in zip(china, flower, strict=True)) > 10 * SAME_NUMBER


def test_the_kv_cache_moves_with_every_request(running):
    """SGLang's own histogram of transferred megabytes grows each time, and more for a longer prompt."""
    url = running.service.prefills[0].url

    def moved():
        return running.metric("sglang:kv_transfer_total_mb_sum", url)

    model = running.service.model_name
    growth = []
    for urls in ([], [CHINA], [CHINA, FLOWER]):
        before = moved()
        answer(running.url, model, question(urls))
        wait_for("the transfer to be counted", lambda before=before: moved() > before, 10)
        growth.append(moved() - before)

    assert growth == sorted(growth)
    assert growth[0] > 0
