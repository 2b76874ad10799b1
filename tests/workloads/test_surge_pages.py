"""What /metrics says of a surge: the fullest moment, and attempts per request."""

import pytest

from workloads.scrape import pick
from workloads.surge_pages import NO_PAGES, Amplification, Peak, read_pages

BEGIN, END = 60.0, 90.0
OFFERED = [n / 10 for n in range(600)] + [60 + n / 20 for n in range(600)]  # 10/s, then 20/s


def page(at_s, source, **values):
    return {"at_s": at_s, "source": source, "values": {k.replace("__", ":"): v for k, v in values.items()}}


def engine(at_s, role, waiting=0.0, seen=0.0, source=""):
    """A page as an engine of a pair writes it."""
    stage = {"prefill": "prefill_bootstrap", "decode": "decode_prepare"}[role]
    queue = {"prefill": "num_prefill_bootstrap_queue_reqs", "decode": "num_decode_prealloc_queue_reqs"}[role]
    text = "\n".join(
        [
            f'sglang:num_queue_reqs{{engine_type="{role}",tp_rank="0"}} 0.0',
            f'sglang:{queue}{{engine_type="{role}",tp_rank="0"}} {waiting}',
            f'sglang:per_stage_req_latency_seconds_count{{engine_type="{role}",stage="{stage}"}} {seen}',
            f'sglang:per_stage_req_latency_seconds_count{{engine_type="{role}",stage="decode_waiting"}} 7.0',
            f'sglang:per_stage_req_latency_seconds_bucket{{engine_type="{role}",stage="{stage}",le="1"}} 5.0',
        ]
    )
    return {"at_s": at_s, "source": source or f"{role}-0", "values": pick(text.encode())}


def test_a_queue_is_summed_over_the_gateway_and_the_instances_of_one_role():
    """At 70 s: 5 in the gateway, 20 and 30 at two decodes; the same requests wait at prefill too and count once."""
    records = [
        page(10.0, "target", toolkit_requests_waiting=1.0, toolkit_requests_preparing=1.0),
        engine(11.0, "decode", 20.0),
        engine(69.0, "prefill", 48.0),
        page(69.5, "target", toolkit_requests_waiting=4.0, toolkit_requests_preparing=1.0),
        engine(70.0, "decode", 30.0, source="decode-1"),
        {"at_s": 71.0, "source": "decode-0", "error": "no page within 5 s"},
        engine(90.0, "decode", 0.0),
    ]

    found = read_pages(records, OFFERED, BEGIN, END).queue

    assert found == Peak(55, 70.0, (("decode-0", 20), ("decode-1", 30), ("target", 5)))


def test_a_routers_queue_counts_where_it_shows_one():
    """smg's admission queue stands in front of the engines."""
    records = [page(5.0, "router", smg_admission_queue_depth=12.0), engine(6.0, "prefill", 3.0)]

    assert read_pages(records, OFFERED, BEGIN, END).queue.count == 15


def test_attempts_are_counted_at_the_engines_before_the_surge_and_from_it_on():
    """Before: 600 requests, 600 attempts. Then 600 requests, and 1,500 attempts, the last counted after the surge's end."""
    records = [
        engine(at, role, seen=100 + (10 * at if at <= BEGIN else 600 + 50 * (min(at, END) - BEGIN)))
        for at in (0.0, 30.0, 60.0, 75.0, 95.0)
        for role in ("prefill", "decode")
    ]
    records[3:3] = [page(31.0, "target", toolkit_requests_waiting=0.0)]

    tried = read_pages(records, OFFERED, BEGIN, END).amplification

    assert tried.counted == "requests that reached the engines"
    assert tried.baseline == pytest.approx(1.0, abs=0.01)
    assert tried.surge == pytest.approx(1500 / 600, abs=0.01)


def test_a_restarted_engine_counts_on_from_nothing():
    """600 before the restart and 30 after it are 630 more, not 570 less."""
    seen = {0.0: 0.0, 60.0: 600.0, 70.0: 1200.0, 80.0: 30.0, 90.0: 30.0}
    records = [engine(at, "decode", seen=count) for at, count in seen.items()]

    assert read_pages(records, OFFERED, BEGIN, END).amplification == Amplification(
        1.0, 630 / 600, "requests that reached the engines"
    )


def test_without_engines_a_routers_own_retries_are_what_is_known():
    """One attempt per request, and those it says it added."""
    records = [
        page(at, "router", smg_worker_retries_total=3 * max(0.0, at - BEGIN)) for at in (0.0, 60.0, 90.0)
    ]

    tried = read_pages(records, OFFERED, BEGIN, END).amplification

    assert (tried.baseline, tried.surge) == (1.0, 1.15)
    assert "smg_worker_retries_total" in tried.counted


def test_what_nobody_exports_is_not_measurable_and_says_why():
    """No pages; pages without the names; pages that end before the surge does."""
    assert read_pages([], OFFERED, BEGIN, END) is NO_PAGES
    assert read_pages([{"at_s": 1.0, "source": "x", "error": "down"}], OFFERED, BEGIN, END) is NO_PAGES

    bare = read_pages([page(1.0, "x", process_resident_memory_bytes=1.0)], OFFERED, BEGIN, END)
    assert (bare.queue, bare.amplification) == (None, None)
    assert "queue gauge" in bare.why["queue"]
    assert "--scrape" in bare.why["amplification"]

    short = read_pages([engine(1.0, "decode", seen=1), engine(70.0, "decode", seen=9)], OFFERED, BEGIN, END)
    assert short.amplification is None
    assert short.why["amplification"] == "the pages of decode-0 do not cover the baseline and the surge"
