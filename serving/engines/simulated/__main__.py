"""`python -m serving.engines.simulated --role prefill|decode|unified --port P ...`: one stand-in engine as a process."""

import argparse
import asyncio
import os
import random
import secrets
import signal
import subprocess
import sys

import uvloop
from prometheus_client import disable_created_metrics

from serving.engines.simulated.effects import Limits
from serving.engines.simulated.metrics import ITL_S, TTFT_S
from serving.engines.simulated.model import PRESETS
from serving.engines.simulated.rendezvous import Heartbeat
from serving.engines.simulated.stand_in import Settings, StandIn
from toolkit.core.clock import SystemClock

DISAGGREGATION = "SGLANG_DISAGGREGATION_"
HELPER = "import time; time.sleep(86400)"


def parse(argv: list[str]) -> argparse.Namespace:
    """The command line; names and defaults as SGLang's where it has them."""
    parser = argparse.ArgumentParser(prog="python -m serving.engines.simulated", description=__doc__)
    parser.add_argument("--role", choices=("prefill", "decode", "unified"), required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--bootstrap-port", type=int, default=0, help="of a prefill engine; 0: a free one")
    parser.add_argument("--model-name", default="simulated")
    parser.add_argument("--preset", choices=tuple(PRESETS), default="cpu_tiny", help="how fast it is")
    parser.add_argument("--max-total-tokens", type=int, default=32_768)
    parser.add_argument("--max-running-requests", type=int, default=64)
    parser.add_argument("--page-size", type=int, default=1)
    parser.add_argument("--context-length", type=int, default=0, help="0: as --max-total-tokens")
    parser.add_argument("--chunked-prefill-size", type=int, default=8192)
    parser.add_argument("--min-pixels", type=int, default=3136)
    parser.add_argument("--max-pixels", type=int, default=200_704)
    parser.add_argument("--fetch-images", action="store_true", help="fetch http(s) URLs; refused otherwise")
    parser.add_argument(
        "--answer-tokens",
        type=int,
        default=0,
        help="of answers that nothing else ends; 0: 96 to 607, by question",
    )
    parser.add_argument(
        "--helpers",
        type=int,
        default=0,
        help="child processes in sessions of their own that wait and outlive it, as an engine's schedulers may: "
        "whoever starts engines has to end them",
    )
    parser.add_argument("--bucket-time-to-first-token", type=float, nargs="+", default=TTFT_S)
    parser.add_argument("--bucket-inter-token-latency", type=float, nargs="+", default=ITL_S)
    return parser.parse_args(argv)


def limits(options: argparse.Namespace, env: dict[str, str]) -> Limits:
    """Sizes from the command line, timeouts from the variables that the real engine reads."""
    return Limits(
        max_total_tokens=options.max_total_tokens,
        page_size=options.page_size,
        max_running=options.max_running_requests,
        chunk_tokens=options.chunked_prefill_size,
        context_tokens=options.context_length or options.max_total_tokens,
        bootstrap_timeout_s=float(env.get(f"{DISAGGREGATION}BOOTSTRAP_TIMEOUT", 300)),
        waiting_timeout_s=float(env.get(f"{DISAGGREGATION}WAITING_TIMEOUT", 300)),
    )


def settings(options: argparse.Namespace, env: dict[str, str]) -> Settings:
    """The whole engine from its command line and environment."""
    return Settings(
        role=options.role,
        host=options.host,
        port=options.port,
        bootstrap_port=options.bootstrap_port,
        model_name=options.model_name,
        preset=options.preset,
        costs=PRESETS[options.preset],
        limits=limits(options, env),
        images=(options.min_pixels, options.max_pixels),
        fetch_images=options.fetch_images,
        answer_tokens=options.answer_tokens,
        ttft_s=tuple(options.bucket_time_to_first_token),
        itl_s=tuple(options.bucket_inter_token_latency),
        heartbeat=Heartbeat(
            float(env.get(f"{DISAGGREGATION}HEARTBEAT_INTERVAL", 5)),
            int(env.get(f"{DISAGGREGATION}HEARTBEAT_MAX_FAILURE", 2)),
        ),
        health_generates=env.get("SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION", "true").lower()
        not in ("false", "0"),
    )


async def serve(made: Settings) -> None:
    """Until SIGTERM or SIGINT; then, as SGLang, until the requests under way have ended. Raises OSError without its port."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    engine = StandIn(made, SystemClock(), random.Random(secrets.randbits(64)))
    try:
        await engine.start()
        print(
            f"simulated {made.role} engine on {engine.url}, preset {made.preset}: no model computes here",
            flush=True,
        )
        await stop.wait()
        await engine.drained()
    finally:
        await engine.stop()


def main() -> int:
    disable_created_metrics()  # type: ignore[no-untyped-call]
    options = parse(sys.argv[1:])
    for _ in range(options.helpers):
        subprocess.Popen([sys.executable, "-IS", "-c", HELPER], start_new_session=True)
    try:
        uvloop.run(serve(settings(options, dict(os.environ))))
    except OSError as error:
        print(f"the simulated engine cannot listen: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
