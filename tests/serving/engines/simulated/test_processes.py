"""Stand-in engines as processes: their faults, over the wire."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from serving.topology import free_ports
from tests.conformance.engines import Answer, Pair, new_rid, post, simulated, wait_ready
from tests.live.service import wait_for

ROLES = ("prefill", "decode")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """One for all tests here; the last two leave it broken."""
    with simulated(
        tmp_path_factory.mktemp("engines"), SGLANG_DISAGGREGATION_HEARTBEAT_INTERVAL="0.2"
    ) as pair:
        yield pair


def switch(pair: Pair, role: str, **faults: Any) -> httpx.Response:
    return httpx.post(f"{pair.url(role)}/simulated/faults", json=faults, timeout=10)


def test_faults_are_shown_and_kept(pair: Pair) -> None:
    """A request changes what it names; a wrong name or value is refused and changes nothing."""
    switch(pair, "decode", slow_factor=2.0)
    switch(pair, "decode", transfer_delay_s=0.5)
    shown = pair.get("decode", "/simulated/faults").json()
    assert (shown["simulated"], shown["slow_factor"], shown["transfer_delay_s"]) == (True, 2.0, 0.5)
    assert switch(pair, "decode", slow=3).status_code == 400
    assert switch(pair, "decode", slow_factor=-1).status_code == 400
    assert pair.get("decode", "/simulated/faults").json() == shown
    switch(pair, "decode", slow_factor=1.0, transfer_delay_s=0)


def test_a_full_queue_is_503_or_told_inside_a_200(pair: Pair) -> None:
    """As SGLang tells it: a real status without a stream, an error event in one."""
    for role in ROLES:
        switch(pair, role, answer_503=True)
    whole, streamed = pair.ask(), pair.ask(stream=True)
    for role in ROLES:
        switch(pair, role, answer_503=False)

    for leg in whole:
        assert (leg.status, leg.json["type"], leg.json["message"]) == (
            503,
            "503",
            "The request queue is full.",
        )
    for leg in streamed:
        assert leg.status == 200 and leg.events[0]["error"]["code"] == 503
    assert [leg.status for leg in pair.ask()] == [200, 200]


def test_a_frozen_engine_is_ready_and_silent(pair: Pair) -> None:
    """Its HTTP side lives; when it thaws, the request goes on."""

    async def run() -> tuple[bool, int, int]:
        async with httpx.AsyncClient(timeout=30) as client:
            await client.post(f"{pair.decode}/simulated/faults", json={"freeze": True})
            body = pair.chat()
            path = "/v1/chat/completions"
            legs = [
                asyncio.create_task(post(client, url + path, {**body, "rid": new_rid()}))
                for url in (pair.prefill, pair.decode)
            ]
            ready = await client.get(f"{pair.decode}/ready")
            await asyncio.sleep(0.3)
            silent = not any(leg.done() for leg in legs)
            await client.post(f"{pair.decode}/simulated/faults", json={"freeze": False})
            answers = await asyncio.gather(*legs)
            return silent, ready.status_code, sum(leg.status for leg in answers)

    assert asyncio.run(run()) == (True, 200, 400)


def test_several_samples_hang_on_decode(pair: Pair) -> None:
    """n > 1 under PD, as in SGLang 0.5.23: prefill ends, decode waits for ever."""

    async def run() -> tuple[int, bool]:
        async with httpx.AsyncClient(timeout=30) as client:
            body = pair.chat(n=2)
            decode = asyncio.create_task(
                post(client, f"{pair.decode}/v1/chat/completions", {**body, "rid": new_rid()})
            )
            prefill = await post(client, f"{pair.prefill}/v1/chat/completions", {**body, "rid": new_rid()})
            await asyncio.sleep(0.3)
            hangs = not decode.done()
            await client.post(f"{pair.decode}/abort_request", json={"abort_all": True})
            await decode
            return len(prefill.json["choices"]), hangs

    assert asyncio.run(run()) == (2, True)


def test_a_pause_holds_answers_back(pair: Pair) -> None:
    """In place; they go on afterwards."""
    httpx.post(f"{pair.prefill}/pause_generation", json={"mode": "in_place"}, timeout=10)

    async def run() -> bool:
        async with httpx.AsyncClient(timeout=30) as client:
            body = {**pair.chat(bootstrap_host="2.2.2.2"), "rid": new_rid()}
            leg = asyncio.create_task(post(client, f"{pair.prefill}/v1/chat/completions", body))
            await asyncio.sleep(0.3)
            held = not leg.done()
            await client.post(f"{pair.prefill}/continue_generation", json={})
            return held and (await leg).status == 200

    assert asyncio.run(run())


def test_a_unified_engine_needs_nobody_and_ends_in_order(tmp_path: Path) -> None:
    """It answers alone, shows the tokenizer's metrics too, and SIGTERM ends it at once when idle."""
    (port,) = free_ports("127.0.0.1", 1)
    url = f"http://127.0.0.1:{port}"
    argv = [sys.executable, "-m", "serving.engines.simulated", "--role", "unified", "--port", str(port)]
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(argv, stdout=log, stderr=log) as process:
        try:
            wait_ready(url)
            ask = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, "n": 2}
            answer = httpx.post(f"{url}/v1/chat/completions", json=ask, timeout=30).json()
            healthy = httpx.get(f"{url}/health", timeout=30)
            scrape = httpx.get(f"{url}/metrics", timeout=30).text
            process.send_signal(signal.SIGTERM)
            process.wait(20)
        finally:
            process.kill()

    assert process.returncode == 0
    assert healthy.status_code == 200
    assert len(answer["choices"]) == 2 and answer["usage"]["completion_tokens"] == 10
    assert (
        'sglang:time_to_first_token_seconds_count{engine_type="unified",is_streaming="false",model_name="simulated"}'
        in scrape
    )
    assert "no model computes here" in (tmp_path / "log").read_text()


def test_a_closed_stream_goes_on_for_a_while(pair: Pair) -> None:
    """As SGLang: whoever only hangs up, and sends no abort, keeps the engine busy for two seconds."""
    rid = new_rid()
    body = pair.chat(bootstrap_host="2.2.2.2", max_tokens=20_000, ignore_eos=True, stream=True)
    with httpx.stream(
        "POST", f"{pair.decode}/v1/chat/completions", json={**body, "rid": rid}, timeout=30
    ) as leg:
        next(leg.iter_raw())

    def still_there() -> bool:
        again = httpx.post(
            f"{pair.decode}/v1/chat/completions",
            json={**body, "rid": rid, "stream": False, "max_tokens": 1},
            timeout=30,
        )
        return again.status_code == 400 and "Duplicate" in again.text

    assert still_there()
    wait_for("the abort", lambda: not still_there(), 20)


def test_a_failed_transfer_is_told_on_both_legs_and_remembered(pair: Pair) -> None:
    """The next request fails too, though the fault is off: the session is on prefill's blacklist. Nothing after this may
    ask the pair for an answer."""
    switch(pair, "prefill", transfer_failure_rate=1.0)
    first = pair.ask()
    switch(pair, "prefill", transfer_failure_rate=0.0)
    second = pair.ask()
    scrape = pair.get("prefill", "/metrics").text

    for leg in (*first, *second):
        assert leg.status == 500 and "KVTransferError(bootstrap_room=" in leg.json["message"]
    assert "is not alive" in second[0].json["message"]
    assert (
        "sglang:num_transfer_failed_reqs_total{" in scrape and "failed_session_recoveries_total 0.0" in scrape
    )


def test_a_dead_prefill_is_noticed_by_heartbeat(pair: Pair) -> None:
    """Decode fails what waited for it, in SGLang's words. The very last: it ends the pair."""

    async def run() -> Answer:
        async with httpx.AsyncClient(timeout=30) as client:
            path = "/v1/chat/completions"
            decode = asyncio.create_task(post(client, pair.decode + path, {**pair.chat(), "rid": new_rid()}))
            await asyncio.sleep(0.3)
            await client.post(f"{pair.prefill}/simulated/faults", json={"die": True})
            return await decode

    leg = asyncio.run(run())
    assert leg.status == 500
    assert "Lost connection with prefill instance (bootstrap_addr: 127.0.0.1:" in leg.json["message"]
