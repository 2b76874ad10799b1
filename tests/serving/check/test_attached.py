"""Engines that run already tell how they were started; what they do not tell is said."""

import asyncio
import json
from pathlib import Path

from serving.check.ask import asked
from serving.check.gather import facts_of
from serving.check.rule import Finding, Report
from serving.check.table import RULES, check
from serving.config import ServeConfig
from serving.engines.attach import endpoints
from serving.topology import Plan
from tests.serving.check.cases import QWEN

URLS = {"attach_prefill": ("http://127.0.0.1:30000",), "attach_decode": ("http://127.0.0.1:30001",)}
USUAL = "--model-path /m --enable-metrics --bucket-time-to-first-token 0.8 3 --bucket-inter-token-latency 0.05 0.1"


def plan(urls: dict[str, tuple[str, ...]] | None = None) -> Plan:
    config = ServeConfig.model_validate({"engine": urls or URLS})
    return Plan(config, (), endpoints(config.engine), "", "m", "http://127.0.0.1:1")


def looked(prefill: dict[str, object], decode: dict[str, object]) -> Report:
    return check(facts_of(plan(), {}, {"prefill-0": prefill, "decode-0": decode}))


def told(command: str, **more: object) -> dict[str, object]:
    return {"launch_command": command, "device": "cuda", "page_size": 1, **more}


def only(report: Report, name: str) -> Finding:
    (finding,) = [one for one in report.findings if one.id == name]
    return finding


def test_their_command_lines_are_looked_at() -> None:
    """And the fix is what to restart them with."""
    report = looked(told(f"{USUAL} --max-queued-requests=4"), told(f"{USUAL} --kv-cache-dtype fp8_e5m2"))
    limit = only(report, "queue-limit-ignored")

    assert (limit.where, limit.fix) == (("prefill-0",), ("restart without --max-queued-requests",))
    assert "restart with --image-processor-backend pil" in report.together


def test_an_engine_as_sglang_starts_it_lacks_edges_and_metrics() -> None:
    """None of what `toolkit serve` sets is there."""
    bare, usual = (
        {one.id for one in looked(told(words), told(words)).findings} for words in ("--model-path /m", USUAL)
    )

    assert bare - usual == {"ttft-edges", "itl-edges", "engine-metrics-off"}


def test_json_is_read_though_sglang_tells_it_without_quotes() -> None:
    """Its words are joined by spaces."""
    words = USUAL + ' --limit-mm-data-per-request {"image": 2, "video": 0} --tp 2'

    assert only(looked(told(words), told(USUAL)), "image-limit-unlike").fix == ("access.max_images = 2",)


def test_what_sglang_made_of_unsaid_settings_counts_too() -> None:
    """Slots and page sizes that it chose itself."""
    slots = [{"effective_max_running_requests_per_dp": 8}, {"effective_max_running_requests_per_dp": 8}]
    report = looked(told(USUAL), told(USUAL, page_size=64, internal_states=slots))

    assert only(report, "more-than-slots").fix == ("schedule.max_in_flight = 16",)
    assert only(report, "roles-unlike").what == "--page-size is 1 on prefill and 64 on decode"


def test_mooncake_over_tcp_is_mooncake() -> None:
    """It takes TCP by itself where there is no RDMA."""
    words = f"{USUAL} --disaggregation-transfer-backend "

    assert "roles-unlike" not in {
        one.id for one in looked(told(words + "mooncake_tcp"), told(words + "mooncake")).findings
    }
    assert only(looked(told(words + "nixl"), told(words + "mooncake")), "roles-unlike")


def test_their_model_is_read_where_its_folder_is_here(tmp_path: Path) -> None:
    """For the sizes of images, and the pool that they must fit."""
    (tmp_path / "config.json").write_text(json.dumps(QWEN))
    (tmp_path / "preprocessor_config.json").write_text(
        json.dumps({"min_pixels": 3136, "max_pixels": 12_845_056})
    )
    here = told(USUAL, model_path=str(tmp_path), max_total_num_tokens=100_000)

    assert only(looked(here, here), "images-over-pool").fix == ("access.max_images = 6",)


def test_their_environment_is_not_known() -> None:
    """Rules that read it say so, and do not guess."""
    report = looked(told(USUAL), told(USUAL))
    (unchecked,) = [one for one in report.unchecked if "environment" in one.reason]

    assert set(unchecked.rules) == {rule.id for rule in RULES if rule.variables}
    assert not {one.id for one in report.findings} & set(unchecked.rules)


def test_an_engine_that_does_not_tell_its_command_line_is_not_judged() -> None:
    """A stand-in, or SGLang inside somebody's own program."""
    silent = {"launch_command": None, "max_total_num_tokens": 1000}
    report = looked({"simulated": True}, silent)

    assert [one.reason for one in report.unchecked if "kv-int8" in one.rules] == [
        "the engines run already, and do not tell how they were started"
    ]
    assert "more-than-slots" not in {one.id for one in report.findings}


async def _answers(pages: dict[str, tuple[int, bytes]]) -> tuple[asyncio.Server, str]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        status, body = pages[path]
        writer.write(
            b"HTTP/1.1 %d x\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b" % (status, len(body), body)
        )
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    return server, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def test_they_are_asked_one_page(tmp_path: Path) -> None:
    """What answers 401 has a key that the gateway lacks; what is silent or no SGLang is left out."""

    async def ask() -> Report:
        good, engine = await _answers({"/server_info": (200, json.dumps(told(USUAL)).encode())})
        locked, keyed = await _answers({"/server_info": (401, b'{"error": "Unauthorized"}')})
        other, page = await _answers({"/server_info": (200, b"<html>")})
        async with good, locked, other:
            planned = plan({"attach_prefill": (engine, page), "attach_decode": (keyed, "http://127.0.0.1:1")})
            answers = await asked(planned.engines)
        assert set(answers) == {"prefill-0", "decode-0"}
        return check(facts_of(planned, {}, answers))

    assert only(asyncio.run(ask()), "engine-key").where == ("decode-0",)
