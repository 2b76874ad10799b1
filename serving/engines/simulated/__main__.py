"""`python -m serving.engines.simulated --role prefill|decode|unified --port P ...`: one stand-in engine as a process."""

import argparse
import asyncio
import contextlib
import os
import secrets
import signal
import sys
from collections.abc import Iterator

import uvicorn
import uvloop
from prometheus_client import disable_created_metrics

from serving.engines.simulated.effects import Limits
from serving.engines.simulated.engine import Engine
from serving.engines.simulated.http import App, app
from serving.engines.simulated.media import BadMedia, Eyes, Fetch
from serving.engines.simulated.metrics import ITL_S, TTFT_S, Metrics
from serving.engines.simulated.model import PRESETS
from serving.engines.simulated.pages import Identity
from serving.engines.simulated.rendezvous import Heartbeat, Peers
from serving.engines.simulated.scheduler import Scheduler
from serving.engines.simulated.server import Server
from toolkit.core.clock import SystemClock
from toolkit.core.http.client import HttpClient
from toolkit.core.http.errors import TransportError

DISAGGREGATION = "SGLANG_DISAGGREGATION_"
FETCH_TIMEOUT_S = 3.0
"""SGLang's REQUEST_TIMEOUT for one image."""
FETCH_MOST_BYTES = 64_000_000


class Quiet(uvicorn.Server):
    """uvicorn without its own signal handling."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def parse(argv: list[str]) -> argparse.Namespace:
    """The command line; names and defaults as SGLang's where it has them."""
    parser = argparse.ArgumentParser(prog="python -m serving.engines.simulated", description=__doc__)
    parser.add_argument("--role", choices=("prefill", "decode", "unified"), required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--bootstrap-port", type=int, default=0, help="of a prefill engine")
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


def fetcher(client: HttpClient) -> Fetch:
    async def fetch(url: str) -> bytes:
        try:
            async with asyncio.timeout(FETCH_TIMEOUT_S):
                response = await client.send("GET", url)
                try:
                    data = await response.read(FETCH_MOST_BYTES)
                finally:
                    response.close()
        except (TransportError, TimeoutError, ValueError) as error:
            raise BadMedia(f"Failed to fetch {url}: {error}") from error
        if response.status != 200:
            raise BadMedia(f"Failed to fetch {url}: status {response.status}")
        return data

    return fetch


async def serve(options: argparse.Namespace, env: dict[str, str]) -> None:
    """Until SIGTERM or SIGINT; then, as SGLang, until the requests under way have ended."""
    clock, client = SystemClock(), HttpClient()
    metrics = Metrics(
        options.model_name,
        options.role,
        os.getpid(),
        options.bucket_time_to_first_token,
        options.bucket_inter_token_latency,
    )
    scheduler = Scheduler(options.role, PRESETS[options.preset], limits(options, env), clock.monotonic())
    engine = Engine(scheduler, clock, metrics.observe)
    own_url = f"http://{options.host}:{options.port}"
    session = f"{options.host}:{options.port}:{secrets.token_hex(4)}"
    heartbeat = Heartbeat(
        float(env.get(f"{DISAGGREGATION}HEARTBEAT_INTERVAL", 5)),
        int(env.get(f"{DISAGGREGATION}HEARTBEAT_MAX_FAILURE", 2)),
    )
    peers = Peers(engine, client, own_url, session, heartbeat)
    fetch = fetcher(client) if options.fetch_images else None
    eyes = Eyes(options.min_pixels, options.max_pixels, fetch)
    identity = Identity(
        options.model_name,
        options.role,
        options.port,
        options.bootstrap_port,
        options.preset,
        env.get("SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION", "true").lower() not in ("false", "0"),
    )
    server = Server(identity, engine, peers, eyes, metrics)
    listeners = [_uvicorn(app(server.handle), options.host, options.port)]
    if options.bootstrap_port:
        listeners.append(_uvicorn(app(peers.bootstrap), options.host, options.bootstrap_port))
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    tasks = [asyncio.create_task(one.serve()) for one in listeners]
    stopped = asyncio.create_task(stop.wait())
    print(
        f"simulated {options.role} engine on {own_url}, preset {options.preset}: no model computes here",
        flush=True,
    )
    try:
        await asyncio.wait([*tasks, stopped], return_when=asyncio.FIRST_COMPLETED)
        server.stopping = True
        if stop.is_set():
            await server.idle.wait()
    finally:
        stopped.cancel()
        for one in listeners:
            one.should_exit = True
        await asyncio.gather(*tasks, return_exceptions=True)
        engine.close()
        await peers.close()
        await client.close()


def _uvicorn(application: App, host: str, port: int) -> Quiet:
    config = uvicorn.Config(
        application,
        host=host,
        port=port,
        http="httptools",
        loop="none",
        lifespan="off",
        ws="none",
        interface="asgi3",
        access_log=False,
        log_level="warning",
        timeout_graceful_shutdown=1,
        backlog=2048,
    )
    return Quiet(config)


def main() -> None:
    disable_created_metrics()  # type: ignore[no-untyped-call]
    uvloop.run(serve(parse(sys.argv[1:]), dict(os.environ)))


if __name__ == "__main__":
    main()
