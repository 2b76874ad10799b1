"""Killed, frozen, interrupted: what a client sees, and what is left."""

import signal
import time

import httpx
import orjson
import pytest

from tests.live.service import Running, interrupt, still_alive, wait_for

pytestmark = [pytest.mark.engine, pytest.mark.killing]

LONG = {"stream": True, "max_tokens": 3000, "ignore_eos": True}


def test_a_decode_killed_in_mid_stream_is_told_restarted_and_serves_again(running):
    """A typed error event, no [DONE]; the other decode serves at once; the killed one comes back and serves."""
    wait_for("all pairs", running.all_pairs_ready, 60)
    body = {"model": running.service.model_name, "messages": [{"role": "user", "content": "hi"}], **LONG}
    received = b""
    with httpx.stream("POST", f"{running.url}/v1/chat/completions", json=body, timeout=60) as stream:
        victim = stream.headers["x-served-by"].partition("+")[2]
        process = running.root_of(victim)
        family = [process, *process.children(recursive=True)]
        for chunk in stream.iter_bytes():
            if not received:
                process.send_signal(signal.SIGKILL)
            received += chunk
    last = received.decode().strip().split("\n\n")[-1]
    next_answer = running.chat(max_tokens=4)

    assert orjson.loads(last.removeprefix("data: "))["error"]["code"] == "engine_failed"
    assert b"[DONE]" not in received
    assert next_answer.status_code == 200, next_answer.text
    assert next_answer.headers["x-served-by"].partition("+")[2] != victim
    wait_for("the killed engine's children to end", lambda: not still_alive(family), 10)
    wait_for("the killed decode in rotation again", running.all_pairs_ready, 120)
    served = {running.chat(max_tokens=4).headers.get("x-served-by", "").partition("+")[2] for _ in range(6)}
    assert victim in served
    assert running.idle()


def test_a_frozen_prefill_ends_in_504_near_the_budget_and_recovers(running):
    """No request hangs on a frozen engine; after it thaws the next succeeds, and no slot is lost."""
    wait_for("all pairs", running.all_pairs_ready, 60)
    process = running.root_of("prefill-0")
    family = [process, *process.children(recursive=True)]
    for member in family:
        member.send_signal(signal.SIGSTOP)
    try:
        begun = time.monotonic()
        late = running.chat(max_tokens=4, headers={"x-ttft-budget-ms": "1500"})
        spent = time.monotonic() - begun
    finally:
        for member in family:
            member.send_signal(signal.SIGCONT)

    assert (late.status_code, late.json()["error"]["code"], late.json()["error"]["hop"]) == (
        504,
        "ttft_budget_exceeded",
        "prefill",
    )
    assert 1.4 <= spent <= 4.0
    wait_for("a working pair", lambda: running.chat(max_tokens=4).status_code == 200, 60)
    assert running.idle()


@pytest.mark.ending
def test_ctrl_c_takes_everything_down_within_ten_seconds(running: Running):
    """Launcher, gateway, engines and their children: nothing remains, and the port is free."""
    everyone = running.family()
    assert len(everyone) >= 8  # guards, gateway, three engines with scheduler and detokenizer each

    interrupt(running)

    wait_for(
        "everything to end", lambda: not still_alive(everyone) and running.process.poll() is not None, 10
    )
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{running.url}/healthz", timeout=2)
