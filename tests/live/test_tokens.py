"""The gateway's count of a prompt is the engine's own, whatever is asked."""

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.live.running import counted_wrong, records
from tests.live.service import Running, wait_for
from tests.serving.tokenizer.conversations import Case, images, one_image, texts

pytestmark = pytest.mark.engine

MISMATCHES = "toolkit_prompt_token_mismatch_total"
BREAKS_SGLANG = "an option of the library"
"""It answers 500 for it; that would be held against the pair."""


def ask(running: Running, case: Case, number: int) -> httpx.Response:
    """Streamed and whole, in turns."""
    more = {"stream": True, "stream_options": {"include_usage": True}} if number % 2 else {}
    patient = {"x-slo-class": "batch", "x-ttft-budget-ms": "120000"}
    return running.chat(**{**case.document, "max_tokens": 1 + number % 3, **more, "headers": patient})


def test_prompts_are_counted_as_the_engine_counts_them(running: Running) -> None:
    """System messages, turns, tools, odd characters, long texts, several images of odd sizes: every number agrees, and the
    metric says so. What could not be counted, the engine refused."""
    cases = [case for case in (*texts(), *one_image(), *images(9, 12)) if case.name != BREAKS_SGLANG]

    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda pair: ask(running, pair[1], pair[0]), enumerate(cases)))

    asked = {answer.headers["x-request-id"]: case for answer, case in zip(answers, cases, strict=True)}
    found = wait_for(
        "every journal line",
        lambda: (
            (mine := [r for r in records(running) if r["request_id"] in asked])
            and len(mine) == len(asked)
            and mine
        ),
        10,
    )
    answered = [record for record in found if record["prompt_tokens"] is not None]
    assert [
        asked[r["request_id"]].name for r in found if r["outcome"] == "completed" and not r["tokens_counted"]
    ] == []
    assert len(answered) >= 0.8 * len(cases)
    assert counted_wrong(answered) == []
    assert running.metric(MISMATCHES) == 0
