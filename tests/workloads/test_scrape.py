"""/metrics beside the samples: a stated list of names, on the run's time axis, at little cost."""

import asyncio
import json

import pytest

from toolkit.core.clock import SystemClock
from toolkit.core.http.client import HttpClient
from workloads.bench import Scraping, run_bench
from workloads.profile import load_profile
from workloads.scrape import NAMES, Scraper, Source, levels, pick, sources

PAGE = b"""# HELP toolkit_requests_waiting Prepared requests.
# TYPE toolkit_requests_waiting gauge
toolkit_requests_waiting 3.0
toolkit_requests_waiting_other 9.0
sglang:num_queue_reqs{engine_type="decode",name="a b} c"} 2.0
sglang:num_queue_reqs{engine_type="prefill"} 5.0 1700000000000
sglang:token_usage 0.25
sglang:token_usage{bad
python_gc_objects 7
sglang:num_running_reqs{x="1"} NaN
toolkit_requests_in_flight 4"""


def test_only_the_stated_names_are_kept_with_their_labels():
    """Names that begin alike, broken lines, NaN and other metrics are left out; a page may end without a line break."""
    values = pick(PAGE)

    assert values == {
        "toolkit_requests_waiting": 3.0,
        "toolkit_requests_in_flight": 4.0,
        'sglang:num_queue_reqs{engine_type="decode",name="a b} c"}': 2.0,
        'sglang:num_queue_reqs{engine_type="prefill"}': 5.0,
        "sglang:token_usage": 0.25,
    }
    assert pick(b"") == {}


def test_levels_sum_series_and_take_the_fullest_pool():
    """Waiting requests add up over ranks, a pool's usage does not; pages that failed do not count as zero."""
    records = [
        {"at_s": 0.0, "source": "target", "values": {"sglang:num_queue_reqs{a}": 1.0, "sglang:num_queue_reqs{b}": 3.0}},
        {"at_s": 1.0, "source": "target", "error": "no page within 5 s"},
        {"at_s": 2.0, "source": "target", "values": {"toolkit_requests_waiting": 8.0}},
        {"at_s": 2.0, "source": "decode-0", "values": {"sglang:token_usage{a}": 0.5, "sglang:token_usage{b}": 0.7}},
    ]  # fmt: skip

    found = {(level.source, level.what): (level.pages, level.mean, level.max) for level in levels(records)}

    assert found == {("target", "waiting"): (2, 6.0, 8.0), ("decode-0", "token usage"): (1, 0.7, 0.7)}


def test_the_rows_are_in_the_same_order_whoever_answered_first():
    """The target, engines by name, then URLs that were given."""
    pages = [
        {"at_s": 1.0, "source": source, "values": {"sglang:token_usage": 0.5}}
        for source in ("http://h:1", "prefill-0", "target", "decode-0")
    ]

    assert [level.source for level in levels(pages)] == ["target", "decode-0", "prefill-0", "http://h:1"]


def test_engines_are_named_by_the_service_that_answers_there(tmp_path):
    """service.json's engines belong to its own gateway only; --scrape adds any URL."""
    (tmp_path / "latest").mkdir()
    service = {
        "gateway_url": "http://127.0.0.1:8000",
        "engines": [{"name": "prefill-0", "url": "http://127.0.0.1:30000"}],
    }
    (tmp_path / "latest" / "service.json").write_text(json.dumps(service))

    here = sources("http://127.0.0.1:8000", ["http://h:1", "http://h:2/metrics"], tmp_path)

    assert here == (
        Source("target", "http://127.0.0.1:8000/metrics"),
        Source("prefill-0", "http://127.0.0.1:30000/metrics"),
        Source("http://h:1", "http://h:1/metrics"),
        Source("http://h:2/metrics", "http://h:2/metrics"),
    )
    assert len(sources("http://127.0.0.1:9", [], tmp_path)) == 1
    assert len(sources("http://127.0.0.1:8000", [], tmp_path / "none")) == 1


def test_pages_are_asked_again_and_missing_ones_once(chat_server, scripts):
    """A target without /metrics is told once; one that does not answer yet is asked on."""
    records = []

    async def main() -> None:
        client, clock = HttpClient(), SystemClock()
        asked = [
            Source("page", f"{chat_server.url}/readyz"),
            Source("none", f"{chat_server.url}/v1/models"),
            Source("dead", "http://127.0.0.1:9/metrics"),
        ]
        scraper = Scraper(client, asked, clock, lambda: 1.0, records.append, every_s=0.01)
        task = asyncio.create_task(scraper.run())
        while sum("values" in record for record in records) < 3:
            await asyncio.sleep(0.005)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await client.close()

    chat_server.ready = scripts([PAGE], 200, "text/plain")
    chat_server.models = scripts([b"no"], 404, "text/plain")
    asyncio.run(main())

    by_source = {name: [r for r in records if r["source"] == name] for name in ("page", "none", "dead")}
    assert [r["error"] for r in by_source["none"]] == ["HTTP status 404"]
    assert len(by_source["dead"]) > 1 and all("error" in r for r in by_source["dead"])
    assert by_source["page"][0]["values"]["toolkit_requests_waiting"] == 3.0
    assert [r["at_s"] for r in by_source["page"]] == sorted(r["at_s"] for r in by_source["page"])


@pytest.mark.slow
def test_a_run_keeps_its_metrics_on_the_time_axis_of_its_samples(chat_server, scripts, tmp_path):
    """metrics.jsonl beside samples.jsonl, and their levels in the report."""
    (tmp_path / "p.toml").write_text(
        'name = "p"\nduration_s = 0.5\nrate = 20.0\narrival = "constant"\n[classes.text_only]\nweight = 1\n'
    )
    folder = tmp_path / "run"
    chat_server.metrics = scripts([PAGE], 200, "text/plain")

    result = run_bench(
        load_profile(str(tmp_path / "p.toml")),
        chat_server.url,
        folder,
        scraping=Scraping(0.1, (chat_server.url,), tmp_path),
    )

    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    report = json.loads((folder / "report.json").read_text())
    waiting = {"source": "target", "what": "waiting", "mean": 10.0, "max": 10.0}
    assert {line["source"] for line in lines} == {"target", chat_server.url}
    assert all(-0.1 <= line["at_s"] <= result.summary.measured_s + 1.0 for line in lines)
    assert any(waiting.items() <= level.items() for level in report["levels"])
    assert "| target | requests waiting | 10 | 10 |" in (folder / "report.md").read_text()


def test_every_name_is_a_metric_that_somebody_exports():
    """The list is short, without repeats, and of the gateway, SGLang, its routers or the process."""
    assert len(set(NAMES)) == len(NAMES) < 30
    assert all(name.startswith(("toolkit_", "sglang:", "smg_", "process_")) for name in NAMES)
