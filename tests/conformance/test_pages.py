"""What an engine tells of itself: loads, information, metrics."""

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conformance.engines import Pair

ROLES = ("prefill", "decode")
REFERENCE: dict[str, dict[str, list[str]]] = json.loads(
    (Path(__file__).parent / "sglang_metrics.json").read_text()
)
"""Names and labels in scrapes of real 0.5.23 engines, by role; "events": those that only appear once something went wrong."""

SUPPORTED = {
    "num_running_reqs", "num_queue_reqs", "num_used_tokens", "token_usage", "gen_throughput", "decode_sum_seq_lens",
    "kv_available_tokens", "kv_used_tokens", "num_prefill_bootstrap_queue_reqs", "num_prefill_inflight_queue_reqs",
    "num_decode_prealloc_queue_reqs", "num_decode_transfer_queue_reqs", "num_retracted_reqs", "max_total_num_tokens",
    "page_size", "num_pages", "context_len", "failed_session_recoveries_total", "queue_time_seconds",
    "per_stage_req_latency_seconds", "kv_transfer_bootstrap_ms", "kv_transfer_alloc_ms",
}  # fmt: skip
"""What dashboards and alerts may rely on, from either role of a pair that has served."""
SUPPORTED_BY = {
    "prefill": SUPPORTED | {"kv_transfer_latency_ms", "kv_transfer_total_mb", "kv_transfer_speed_gb_s"},
    "decode": SUPPORTED | {"realtime_tokens_total"},
}


def series(text: str) -> dict[str, set[str]]:
    """Names (a histogram's three as one) and their label names."""
    histograms = set(re.findall(r"^# TYPE (\S+) histogram$", text, re.MULTILINE))
    found: dict[str, set[str]] = {}
    for name, labels in re.findall(r"^([\w:]+)(?:\{(.*)\})? \S+$", text, re.MULTILINE):
        base = re.sub(r"_(bucket|sum|count)$", "", name)
        own = set(re.findall(r'(\w+)="', labels)) - {"le"}
        found.setdefault((base if base in histograms else name).removeprefix("sglang:"), set()).update(own)
    return found


@pytest.mark.parametrize("role", ROLES)
def test_metrics_have_the_real_names_and_labels(pair: Pair, role: str) -> None:
    """The supported ones are there after one request; a stand-in shows no name that the real engine does not have."""
    pair.ask(max_tokens=50, ignore_eos=True)
    found = series(pair.get(role, "/metrics").text)
    known = {**REFERENCE[role], **REFERENCE["events"]}

    assert SUPPORTED_BY[role] - set(found) == set()
    assert {name: sorted(found[name]) for name in SUPPORTED_BY[role]} == {
        name: known[name] for name in SUPPORTED_BY[role]
    }
    if pair.simulated:
        found.pop("toolkit_simulated")
        assert {name: sorted(labels) for name, labels in found.items()} == {
            name: known.get(name) for name in found
        }


@pytest.mark.parametrize("role", ROLES)
def test_a_pair_shows_no_time_to_first_token(pair: Pair, role: str) -> None:
    """Neither TTFT nor ITL nor HTTP counts: behind Mooncake 0.5.23 exports the scheduler's metrics only. Who wants them
    has to measure at the gateway; when this fails on the real pair, that has changed."""
    pair.ask()
    found = series(pair.get(role, "/metrics").text)

    hidden = {
        "time_to_first_token_seconds",
        "inter_token_latency_seconds",
        "http_requests_total",
        "num_requests_total",
    }
    assert hidden & set(found) == set()


@pytest.mark.engine
@pytest.mark.parametrize("role", ROLES)
def test_a_scrape_of_the_stand_in_is_part_of_the_real_one(
    simulated_pair: Pair, request: pytest.FixtureRequest, role: str
) -> None:
    """Both live, both after the same request."""
    running = request.getfixturevalue("running")
    prefill, decode = running.engine("prefill-0"), running.engine("decode-0")
    real = Pair(prefill.url, decode.url, prefill.bootstrap_port, running.service.model_name, simulated=False)
    scrapes = []
    for one in (simulated_pair, real):
        one.ask(max_tokens=50, ignore_eos=True)
        scrapes.append(series(one.get(role, "/metrics").text))
    stand_in, known = (
        scrapes[0],
        {**{name: set(labels) for name, labels in REFERENCE["events"].items()}, **scrapes[1]},
    )
    stand_in.pop("toolkit_simulated")

    assert stand_in == {name: known.get(name) for name in stand_in}


LOADS = {"timestamp", "version", "accelerator", "num_accelerators", "loads"}
LOAD = {
    "timestamp", "dp_rank", "num_running_reqs", "num_waiting_reqs", "num_waiting_uncached_tokens", "num_used_tokens",
    "num_total_tokens", "num_active_tokens", "num_prealloc_ready_tokens", "max_total_num_tokens", "max_running_requests",
    "token_usage", "gen_throughput", "cache_hit_rate", "utilization", "total_prefill_uncached_tokens",
    "total_prefill_busy_us", "decode_moments", "memory", "disaggregation", "queues",
}  # fmt: skip
INSIDE = {
    "memory": {"weight_gb", "kv_cache_gb", "graph_gb", "token_capacity"},
    "disaggregation": {
        "mode", "prefill_bootstrap_queue_reqs", "prefill_inflight_queue_reqs", "decode_prealloc_queue_reqs",
        "decode_transfer_queue_reqs", "decode_retracted_queue_reqs", "kv_transfer_speed_gb_s", "kv_transfer_latency_ms",
    },
    "queues": {"waiting", "grammar", "paused", "retracted", "prealloc_ready"},
}  # fmt: skip


@pytest.mark.parametrize("role", ROLES)
def test_loads(pair: Pair, role: str) -> None:
    """Every field of the snapshot, and the role."""
    page: dict[str, Any] = pair.get(role, "/v1/loads").json()
    (load,) = page["loads"]

    assert set(page) == LOADS and set(load) == LOAD
    assert {name: set(load[name]) for name in INSIDE} == INSIDE
    assert load["disaggregation"]["mode"] == role
    assert load["max_total_num_tokens"] > 0 and load["max_running_requests"] > 0


@pytest.mark.parametrize("role", ROLES)
def test_information(pair: Pair, role: str) -> None:
    """Ready, healthy, its model and its role."""
    assert pair.get(role, "/ready").status_code == 200
    (model,) = pair.get(role, "/v1/models").json()["data"]
    assert set(model) == {"id", "object", "created", "owned_by", "root", "parent", "max_model_len"}
    assert (model["id"], model["owned_by"]) == (pair.model, "sglang")
    info = pair.get(role, "/model_info").json()
    assert info["disaggregation_mode"] == role
    assert info["has_image_understanding"] is True and info["model_type"] == "qwen2_5_vl"
    server = pair.get(role, "/server_info").json()
    assert server["disaggregation_mode"] == role
    assert {"version", "max_running_requests", "page_size", "internal_states"} <= set(server)


def test_the_bootstrap_server(pair: Pair) -> None:
    """Its health, and its topology for a decode that asks for all ranks."""
    at = f"http://127.0.0.1:{pair.bootstrap_port}"
    assert httpx.get(f"{at}/health", timeout=10).text == "OK"
    ranks = {"prefill_dp_rank": -1, "prefill_cp_rank": -1, "target_tp_rank": -1, "target_pp_rank": -1}
    topology = httpx.get(f"{at}/route", params=ranks, timeout=10).json()
    assert {"attn_tp_size", "attn_cp_size", "dp_size", "pp_size", "page_size"} <= set(topology)


def test_flush_refuses_nothing_when_idle(pair: Pair) -> None:
    """An idle engine flushes its cache."""
    for role in ROLES:
        assert pair.get(role, "/flush_cache?timeout=5").status_code == 200
