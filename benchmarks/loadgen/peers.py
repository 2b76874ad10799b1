"""aiperf and guidellm as a person runs them: their own command line, all their processes on one core."""

import json
import os
import resource
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

MODEL = "fixed-schedule"


def run_aiperf(python: str, url: str, rate: float, seconds: float, core: int, work: Path) -> dict[str, Any]:
    """aiperf 0.13: 1 worker, 1 record processor, Poisson, its per-request export."""
    out = work / "aiperf-out"
    shutil.rmtree(out, ignore_errors=True)
    asked = max(10, int(rate * seconds))
    command = [
        str(Path(python).parent / "aiperf"),
        "profile",
        *("--model", MODEL, "--url", url, "--endpoint-type", "chat", "--streaming"),
        *("--request-rate", f"{rate:g}", "--arrival-pattern", "poisson", "--request-count", str(asked)),
        *("--synthetic-input-tokens-mean", "16", "--synthetic-input-tokens-stddev", "0"),
        *("--tokenizer", str(tokenizer(python, work)), "--workers-max", "1", "--record-processors", "1"),
        *("--artifact-dir", str(out), "--ui", "none", "--no-server-metrics", "--no-gpu-telemetry"),
    ]
    seen = _run(command, core)
    values = []
    for export in out.rglob("profile_export.jsonl"):
        for line in export.read_text(encoding="utf-8").splitlines():
            ttft = json.loads(line)["metrics"].get("time_to_first_token")
            if ttft:
                values.append(ttft["value"] / 1e3)
    return {**seen, "asked": asked, "ttft_s": values}


def run_guidellm(python: str, url: str, rate: float, seconds: float, core: int, work: Path) -> dict[str, Any]:
    """guidellm 0.8.1: Poisson, one worker process, its JSON with every request."""
    out = work / "guidellm-out.json"
    out.unlink(missing_ok=True)
    asked = max(10, int(rate * seconds))
    command = [
        str(Path(python).parent / "guidellm"),
        *("run", "--backend", f"kind=openai_http,target={url},model={MODEL}"),
        *("--profile", f"kind=poisson,rate={rate:g}", "--constraint", f"kind=max_requests,count={asked}"),
        *("--tokenizer", f"kind=hf_auto,model={tokenizer(python, work)}"),
        *("--data", "kind=synthetic_text,prompt_tokens=16,output_tokens=31"),
        *("--output", f"kind=json,path={out}", "--disable-console"),
    ]
    seen = _run(command, core, {"GUIDELLM__MAX_WORKER_PROCESSES": "1"})
    requests = json.loads(out.read_text(encoding="utf-8"))["benchmarks"][0]["requests"]["successful"]
    values = [r["time_to_first_token_ms"] / 1e3 for r in requests if r.get("time_to_first_token_ms")]
    return {**seen, "asked": asked, "ttft_s": values}


def tokenizer(python: str, work: Path) -> Path:
    """A word-level tokenizer on disk: both tools want one, and neither may ask a network for it."""
    folder = work / "tokenizer"
    if not folder.exists():
        code = (
            "import sys; from tokenizers import Tokenizer, models, pre_tokenizers;"
            "from transformers import PreTrainedTokenizerFast;"
            "t = Tokenizer(models.WordLevel({'<unk>': 0, **{chr(n): n for n in range(1, 256)}}, '<unk>'));"
            "t.pre_tokenizer = pre_tokenizers.Split('', 'isolated');"
            "PreTrainedTokenizerFast(tokenizer_object=t, unk_token='<unk>', eos_token='<unk>', bos_token='<unk>')"
            ".save_pretrained(sys.argv[1])"
        )
        subprocess.run([python, "-c", code, str(folder)], check=True)
    return folder


def _run(command: list[str], core: int, settings: dict[str, str] | None = None) -> dict[str, Any]:
    """Run it to its end: CPU seconds of all its processes and how long it took, start-up included."""
    environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false", **(settings or {})}
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        ["taskset", "-c", str(core), *command],
        check=False,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        start_new_session=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{command[0]}: {(done.stderr or done.stdout)[-3000:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"cpu_s": cpu, "took_s": time.monotonic() - began}
