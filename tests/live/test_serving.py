"""The real pair behind the gateway: what a client sees."""

import base64
import http.server
import io
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import openai
import orjson
import pytest
from PIL import Image

from tests.live.service import PHOTOS, Running, wait_for
from toolkit.core.journal import read

pytestmark = pytest.mark.engine

CHINA = (PHOTOS / "china.jpg").read_bytes()


def data_uri(data: bytes, kind: str = "jpeg") -> str:
    return f"data:image/{kind};base64," + base64.b64encode(data).decode()


def image_part(url: str) -> dict[str, object]:
    return {"type": "image_url", "image_url": {"url": url}}


def asking(*urls: str) -> list[dict[str, object]]:
    return [
        {
            "role": "user",
            "content": [{"type": "text", "text": "What is in this picture?"}, *map(image_part, urls)],
        }
    ]


def record_of(running: Running, request_id: str) -> dict[str, object]:
    path = running.run_dir / "journal" / "requests.jsonl"
    return wait_for(
        "the journal line", lambda: next((r for r in read(path) if r["request_id"] == request_id), None), 10
    )


def test_make_serve_prints_what_a_newcomer_needs(running):
    """The gateway's URL first, a curl line with a photo that works as printed, the next command to try."""
    import subprocess

    text = running.output.read_text()
    (curl,) = [line.strip() for line in text.splitlines() if line.strip().startswith("curl ")]
    answer = subprocess.run(["bash", "-c", curl], capture_output=True, timeout=60, check=True).stdout.decode()

    assert text.index(running.url) < text.index(running.service.engines[0].url)
    assert "toolkit bench --profile smoke" in text
    assert answer.count("data: {") >= 2
    assert answer.rstrip().endswith("data: [DONE]")


def test_the_openai_sdk_works_unchanged(running):
    """Stream, whole answer, image, several choices, usage, and a typed error."""
    client = openai.OpenAI(base_url=f"{running.url}/v1", api_key="any", max_retries=0)
    model = client.models.list().data[0].id
    whole = client.chat.completions.create(model=model, messages=asking(data_uri(CHINA)), max_tokens=8)
    stream = client.chat.completions.create(
        model=model,
        messages=asking(data_uri(CHINA)),
        max_tokens=8,
        stream=True,
        stream_options={"include_usage": True},
    )
    pieces = list(stream)
    several = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": "hi"}], max_tokens=4, n=3
    )

    assert whole.usage is not None and whole.usage.completion_tokens > 0
    assert pieces[-1].usage is not None and pieces[-1].usage.prompt_tokens == whole.usage.prompt_tokens
    assert [piece.choices[0].finish_reason for piece in pieces if piece.choices][-1] in ("stop", "length")
    assert sorted(choice.index for choice in several.choices) == [0, 1, 2]
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model=model, messages=asking("file:///etc/passwd"), max_tokens=8)
    assert refused.value.code == "image_url_blocked"


def test_fields_reach_the_engine(running):
    """stop, logprobs, temperature: the engine acts on them, and refuses a wrong one in its own words."""
    with_logprobs = running.chat(max_tokens=4, logprobs=True, top_logprobs=2, temperature=0).json()
    refused = running.chat(temperature=-1)

    assert len(with_logprobs["choices"][0]["logprobs"]["content"][0]["top_logprobs"]) == 2
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "engine_rejected")
    assert "temperature" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    "fields",
    [
        {"logprobs": True, "top_logprobs": 129},
        {"top_k": 1 << 40},
        {"min_tokens": 3, "stop_token_ids": [10**9]},
        {"stop_regex": "(a|a)*b"},
    ],
    ids=["top_logprobs", "top_k", "stop_token_ids", "stop_regex"],
)
def test_a_request_that_would_end_the_engine_is_refused(running, fields):
    """Each of these kills or freezes SGLang's scheduler; at the bound the engine serves."""
    refused = running.chat(max_tokens=4, **fields)
    at_the_bound = running.chat(
        max_tokens=4, logprobs=True, top_logprobs=20, top_k=1 << 30, stop_token_ids=[1]
    )

    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_request")
    assert at_the_bound.status_code == 200, at_the_bound.text


def test_an_absent_max_tokens_is_written_in_and_told(running):
    """The class default bounds what a request may hold."""
    answer = running.chat(messages=asking(data_uri(CHINA)))

    assert answer.headers["x-max-tokens"] == "256"
    assert answer.headers["x-workload-class"] == "image_short"
    assert answer.json()["usage"]["completion_tokens"] <= 256


def test_the_record_of_a_request_holds_each_hop(running):
    """The estimate of image tokens is the engine's own count."""
    answer = running.chat(messages=asking(data_uri(CHINA)), max_tokens=8)
    record = record_of(running, answer.headers["x-request-id"])
    line = record["timeline"]
    (image,) = record["images"]

    assert record["outcome"] == "completed"
    marks = [
        line[name] for name in ("body_read", "prepared", "admitted", "dispatched", "first_token", "ended")
    ]
    assert marks == sorted(marks)
    assert (image["width"], image["height"], image["format"]) == (640, 427, "jpeg")
    assert image["tokens"] == answer.json()["usage"]["prompt_tokens_details"]["image_tokens"]


def test_toolkit_request_shows_the_hops(running):
    """The command a person on call types first."""
    import subprocess

    from tests.live.service import ROOT

    answer = running.chat(max_tokens=4)
    record_of(running, answer.headers["x-request-id"])
    shown = subprocess.run(
        [ROOT / ".venv/bin/toolkit", "request", answer.headers["x-request-id"], "--run", str(running.run_dir)],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip

    assert "prefill and KV transfer" in shown
    assert "completed (200)" in shown


@pytest.fixture
def images(image_port):
    """A server of pictures and traps on the allow-listed port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path == "/redirect":
                self.send_response(302)
                self.send_header("location", "http://127.0.0.1:1/secret")
                self.end_headers()
                return
            body = CHINA if self.path == "/china.jpg" else b"<html>" * 100
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", image_port), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{image_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_image_by_url_is_the_same_as_by_data(running, images):
    """An allow-listed host is fetched; the engine sees the same pixels."""
    fields = {"max_tokens": 6, "temperature": 0, "logprobs": True}
    by_url = running.chat(messages=asking(f"{images}/china.jpg"), **fields).json()
    by_data = running.chat(messages=asking(data_uri(CHINA)), **fields).json()

    assert by_url["choices"][0]["logprobs"] == by_data["choices"][0]["logprobs"]


def test_blocked_and_broken_urls_get_their_codes(running, images):
    """Addresses that are not public, whatever their spelling, a redirect to one, and a page that is no picture."""
    blocked = [
        "file:///etc/passwd", "/etc/passwd", "ftp://127.0.0.1/x", "http://127.0.0.1/x", "http://127.1/x", "http://2130706433/x", "http://0x7f000001/x",
        "http://0177.0.0.1/x", "http://[::1]/x", "http://[::ffff:127.0.0.1]/x", "http://localhost/x", "http://localhost./x", "http://0.0.0.0/x",
        "http://169.254.169.254/latest", "http://10.0.0.1/x", "http://u:p@127.0.0.1/x", f"{images}/redirect",
    ]  # fmt: skip
    codes = {url: running.chat(messages=asking(url)).json()["error"]["code"] for url in blocked}
    page = running.chat(messages=asking(f"{images}/page.jpg")).json()["error"]["code"]

    assert codes == dict.fromkeys(blocked, "image_url_blocked")
    assert page == "image_invalid"


def test_sixty_four_streams_at_once_have_one_outcome_each_and_leave_nothing(running):
    """Every slot is back, every descriptor closed; the books of gateway and journal agree."""
    gateway = running.root_of("gateway")
    wait_for("an idle gateway", running.idle, 10)
    time.sleep(5)  # idle connections to the engines close after 4 s
    descriptors = gateway.num_fds()
    threads = gateway.num_threads()
    before = running.metric("toolkit_requests_total")

    def one(number: int) -> str:
        urls = [data_uri(CHINA)] if number % 2 else []
        answer = running.chat(
            messages=asking(*urls), max_tokens=12, stream=True, headers={"x-slo-class": "batch"}
        )
        return (
            "done"
            if answer.text.rstrip().endswith("data: [DONE]")
            else f"{answer.status_code}: {answer.text[-300:]}"
        )

    with ThreadPoolExecutor(64) as pool:
        outcomes = list(pool.map(one, range(64)))

    assert outcomes == ["done"] * 64
    assert running.metric("toolkit_requests_total") - before == 64
    wait_for("an idle gateway", running.idle, 10)
    wait_for("the descriptors to close", lambda: gateway.num_fds() <= descriptors + 1, 15)
    assert gateway.num_threads() <= threads + 4


def test_a_hang_up_reaches_both_engines(running):
    """The engines stop generating for nobody."""
    import httpx

    aborts = running.metric("toolkit_leg_aborts_total")
    body = {
        "model": running.service.model_name,
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "max_tokens": 4000,  # a request may have 4,915 tokens of the pool
        "ignore_eos": True,
    }
    with httpx.stream("POST", f"{running.url}/v1/chat/completions", json=body, timeout=30) as stream:
        next(stream.iter_bytes())

    wait_for("both aborts", lambda: running.metric("toolkit_leg_aborts_total") - aborts == 2, 10)
    wait_for(
        "idle decodes",
        lambda: all(running_requests(running, d.url) == 0 for d in running.service.decodes),
        10,
    )
    assert running.idle()


def running_requests(running: Running, url: str) -> int:
    import httpx

    loads = httpx.get(f"{url}/v1/loads", timeout=10).json()["loads"]
    return sum(load["num_running_reqs"] for load in loads)


def test_a_large_photo_is_prepared_and_a_larger_one_refused(running):
    """8000x6000 passes by default, 13000x13000 does not, whatever its file size."""
    out = io.BytesIO()
    Image.effect_noise((1000, 750), 60).convert("RGB").resize((8000, 6000)).save(out, "JPEG", quality=70)
    bomb = io.BytesIO()
    Image.new("1", (13000, 13000)).save(bomb, "PNG")
    large = running.chat(
        messages=asking(data_uri(out.getvalue())), max_tokens=4, headers={"x-slo-class": "batch"}
    )
    refused = running.chat(messages=asking(data_uri(bomb.getvalue(), "png")))

    assert large.headers["x-workload-class"] == "high_res"
    assert large.status_code == 200, large.text
    assert (refused.status_code, refused.json()["error"]["code"]) == (413, "image_too_large")


def test_gateway_metrics_and_journal_agree(running):
    """One Sample per request feeds both."""
    wait_for("an idle gateway", running.idle, 10)
    lines = orjson.loads(orjson.dumps(list(read(running.run_dir / "journal" / "requests.jsonl"))))

    assert len(lines) == running.metric("toolkit_requests_total")
    assert len({line["request_id"] for line in lines}) == len(lines)
