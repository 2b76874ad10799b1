"""`toolkit request`: where one request's time went."""

import os
import re
from dataclasses import replace

import pytest

from serving.trace import MEANING, find, render, search
from toolkit.core import names
from toolkit.core.errors import UsageFault
from toolkit.core.journal import Journal
from toolkit.core.sample import (
    Degradation,
    Degraded,
    ImageRecord,
    ItlSummary,
    LostAttempt,
    Outcome,
    Sample,
    SloClass,
    Timeline,
    WorkloadClass,
)


def sample(identity, **changes):
    fields = {
        "request_id": identity,
        "arrived_at": 1.0,
        "workload_class": WorkloadClass.IMAGE_SHORT,
        "slo_class": SloClass.STANDARD,
        "outcome": Outcome.COMPLETED,
        "status": 200,
        "timeline": Timeline(0.001, 0.002, 0.05, 0.051, 0.0515, 0.12, 0.13, 0.4),
        "ttft_budget": 3.0,
        "itl": ItlSummary(3, 0.01, 0.02, 0.02),
        "images": (ImageRecord(4000, 3000, 900_000, "JPEG", 252, 504, 392, "data"),),
        "prefill": "prefill-0",
        "decode": "decode-0",
    }
    return Sample(**{**fields, **changes})


def write(run, *samples):
    journal = Journal(run / "journal", "requests", max_file_bytes=1 << 20, keep_files=2)
    for one in samples:
        journal.append(one.to_dict())
    journal.close()


def test_a_record_survives_the_journal(tmp_path):
    """What is read is what was written."""
    write(tmp_path, sample("req-abc"))

    assert find(tmp_path, "req-abc") == sample("req-abc")


def test_the_picture_shows_each_hop_and_the_image(tmp_path):
    """Hops are in order and their times are there."""
    text = render(sample("req-abc"))
    hops = [line.split("|")[0].strip() for line in text.splitlines() if "|" in line]

    assert hops == ["body", "fetch", "prepare", "wait", "dispatch", "prefill", "first_token", "decode"]
    assert "TTFT 130.0 ms of 3000 ms budget" in text
    assert "image: 4000x3000 JPEG 900000 B (data) -> 504x392, 252 tokens" in text
    found = replace(sample("r").images[0], cache="shared")
    assert "252 tokens, found in the shared cache" in render(sample("r", images=(found,)))
    assert "68.5 ms  prefill and KV transfer" in text


def test_tokens_are_counted_or_estimated():
    """Whether the number beside the engine's is exact is said."""
    tokens = {"text_tokens_estimated": 30, "image_tokens_estimated": 252, "prompt_tokens": 282}

    assert "prompt 282 (counted 30 text + 252 image)" in render(sample("r", tokens_counted=True, **tokens))
    assert "prompt 282 (estimated 30 text + 252 image)" in render(sample("r", **tokens))


def test_a_wait_for_kv_is_told_apart_from_one_for_a_slot():
    """Slots may have been free all the time."""
    assert "waiting for an engine slot, 12.0 ms of it for KV blocks" in render(sample("a", lacked_kv=0.012))
    assert "KV blocks" not in render(sample("a"))


def test_each_failed_attempt_is_told_with_what_came_next(tmp_path):
    """Where, why, after how long; and it survives the journal."""
    lost = LostAttempt("prefill-1", "decode-0", "transfer", "retried", 0.05, 0.06, "KV transfer failed")
    again = LostAttempt("prefill-0", "decode-0", "failed", "no_budget", 0.1, 0.2, "broke")
    made = sample("req-abc", attempts=2, lost_attempts=(lost, again))
    write(tmp_path, made)

    assert find(tmp_path, "req-abc") == made
    assert "attempts 2" in render(made)
    assert (
        "failed attempt 1: prefill-1 + decode-0 at 50.0 ms, transfer after 10.0 ms, tried again: KV transfer failed"
        in render(made)
    )
    assert "failed after 100.0 ms, not tried again (no_budget): broke" in render(made)


def test_a_failed_request_names_its_error_and_hop():
    """The first question on call."""
    text = render(
        sample("r", outcome=Outcome.TIMED_OUT, status=504, error_code="ttft_budget_exceeded", error_hop="prefill", error_message="late",
               timeline=Timeline(0.001, ended=3.0))
    )  # fmt: skip

    assert "error ttft_budget_exceeded in hop prefill: late" in text
    assert "TTFT -" in text


def test_the_hop_a_request_ended_in_gets_the_rest_of_its_time():
    """A budget that ended while images were prepared is not shown as decoding."""
    text = render(
        sample(
            "r",
            outcome=Outcome.TIMED_OUT,
            status=504,
            error_code="ttft_budget_exceeded",
            timeline=Timeline(0.001, 0.002, ended=0.03),
        )
    )

    assert "28.0 ms  decoding, scaling, encoding images   <- ended here" in text
    assert "first token to the end" not in text


def test_last_is_the_newest_and_a_beginning_must_be_unique(tmp_path):
    """Ids are long; a few characters do, when they say one thing."""
    write(tmp_path, sample("req-aa1"), sample("req-ab2"))

    assert find(tmp_path, "last").request_id == "req-ab2"
    assert find(tmp_path, "req-aa").request_id == "req-aa1"
    with pytest.raises(UsageFault, match="beginning of 2 ids"):
        find(tmp_path, "req-a")
    with pytest.raises(UsageFault, match="x-request-id"):
        find(tmp_path, "nope")
    with pytest.raises(UsageFault, match="no journal"):
        find(tmp_path / "elsewhere", "last")


def test_older_runs_are_searched_too_the_newest_first(tmp_path):
    """A service that was started again has a new folder; its clients' ids are of the old one."""
    days = [tmp_path / f"serve-2026113{day}-000000" for day in range(3)]
    write(days[0], sample("req-old1"), sample("req-both1"))
    write(days[1], sample("req-both2"))
    days[2].mkdir()
    (tmp_path / "latest").symlink_to(days[2].name)

    assert search(tmp_path, "req-old1") == (days[0], sample("req-old1"))
    assert search(tmp_path, "req-both")[1].request_id == "req-both2"
    os.utime(days[0] / "journal" / "requests.jsonl", (1.0, 1.0))
    assert search(tmp_path, "last")[0] == days[1]
    os.utime(days[1] / "journal" / "requests.jsonl", (0.5, 0.5))
    assert search(tmp_path, "last")[0] == days[0], "the older service still runs, and was asked last"
    with pytest.raises(UsageFault, match=r"any run folder of .* \(2 with a journal\).* --run"):
        search(tmp_path, "nope")
    with pytest.raises(UsageFault, match="no journal"):
        search(tmp_path / "elsewhere", "last")


def test_what_was_given_up_and_the_time_elsewhere_are_told(tmp_path):
    """The fallback's time is a hop of its own; what was done has sizes and a reason, in the journal too."""
    degraded = (
        Degraded(Degradation.IMAGES, "late", 1296, 324),
        Degraded(Degradation.FALLBACK, "queue_too_long"),
    )
    line = Timeline(body_read=0.001, fetched=0.002, prepared=0.05, fallback=0.4, first_token=1.0, ended=1.5)
    one = sample("req-abc", timeline=line, degraded=degraded)
    write(tmp_path, one)

    text = render(find(tmp_path, "req-abc"))

    assert find(tmp_path, "req-abc") == one
    assert "degraded: images 1296 -> 324 tokens (late)" in text
    assert "degraded: fallback (queue_too_long)" in text
    hops = [line.split("|")[0].strip() for line in text.splitlines() if "|" in line]
    assert hops == ["body", "fetch", "prepare", "dispatch", "fallback", "decode"]


def test_every_hop_stands_in_the_help_of_its_metric():
    told = names.STAGES.help.partition(": ")[2]

    assert set(re.findall(r"\b[a-z_]+\b", told.replace("or ", ""))) == MEANING.keys()
