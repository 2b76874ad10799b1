"""One load run from a profile to a run folder: plan, prepare, drive, report.

The folder holds plan.json and profile.toml (what was asked, repeatable), samples.jsonl and metrics.jsonl (appended as
requests end and pages arrive) and report.md / report.json (rebuilt from them at will).
"""

import asyncio
import gc
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import orjson

from toolkit.core.clock import Clock, SystemClock
from toolkit.core.errors import EnvironmentFault
from toolkit.core.http.client import HttpClient
from toolkit.core.journal import Journal
from toolkit.core.plan import Plan
from workloads.client import MAX_IDLE, ChatCaller
from workloads.compose import compose_load
from workloads.driver import Drive, Driver, Progress
from workloads.folders import begin, released_unused
from workloads.image_server import serving_images
from workloads.offer import offer_of
from workloads.own_error import cache_file, last_check
from workloads.own_limits import allow_files
from workloads.prepare import Prepared, authorization, prepare
from workloads.profile import Profile, to_toml
from workloads.record import LoadSample
from workloads.report.render import Beside, RunFacts, to_json, to_markdown
from workloads.report.summary import Summary, summarise
from workloads.returning import Returns
from workloads.scrape import HISTORY, Level, Scraper, Source, levels, sources
from workloads.target import base_url, find_models

PROGRESS_EVERY_S = 0.25
SAMPLES = "samples"
SAMPLE_QUEUE = 1_000_000  # a slow disk must not cost a record
ENDS = (signal.SIGINT, signal.SIGTERM)
UNLIMITED_BYTES = 1 << 62  # a run's samples are one file


@dataclass(frozen=True, slots=True)
class Hooks:
    """What the caller is told while a run goes on; `on_progress` is called from another thread.

    on_sample: each record as it ends; must not block. on_tick: every quarter of a second, seconds after the run's start and
    which open requests have had no token yet; must not block. enough: asked after both; True ends the run as Ctrl-C does.
    """

    on_target: Callable[[str, str], None] = lambda _, __: None
    on_prepared: Callable[[int, int], None] = lambda _, __: None
    on_progress: Callable[[Progress], None] = lambda _: None
    on_sample: Callable[[LoadSample], None] = lambda _: None
    on_tick: Callable[[float, Sequence[int]], None] | None = None
    enough: Callable[[], bool] = lambda: False


@dataclass(frozen=True, slots=True)
class BenchResult:
    """A finished run."""

    facts: RunFacts
    summary: Summary
    folder: Path
    beside: Beside


@dataclass(frozen=True, slots=True)
class Scraping:
    """Whose /metrics are kept beside the samples. every_s: 0, nobody's. urls: beside the target's and its engines'."""

    every_s: float = 1.0
    urls: tuple[str, ...] = ()
    runs_dir: Path = Path("runs")  # its latest/service.json names the engines


def run_bench(
    profile: Profile,
    url: str,
    folder: Path,
    model: str = "",
    api_key: str = "",
    hooks: Hooks | None = None,
    scraping: Scraping = Scraping(),
) -> BenchResult:
    """Load the target with the profile and write the run folder. Ctrl-C ends the run early and keeps what was recorded.

    Raises EnvironmentFault when nothing answers or records could not be written, UsageFault when the folder is in use
    or the plan is empty or too large.
    """
    import uvloop

    hooks = hooks or Hooks()
    allow_files()
    target = base_url(url)
    clock = SystemClock()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        served = runner.run(served_models(target, api_key))
        model = model or served[0]
        hooks.on_target(target, model)
        plan = compose_load(profile)
        begin(folder, to_toml(profile), plan.to_json())
        with released_unused(folder), serving_images(plan, folder / "plan.json", profile.image_server):
            prepared = prepare(
                plan,
                model,
                profile.extra_body,
                profile.max_body_bytes,
                api_key,
                lambda done: hooks.on_prepared(done, len(plan.requests)),
            )
            run = _Run(profile, plan, target, prepared, folder, clock)
            pages = sources(target, scraping.urls, scraping.runs_dir) if scraping.every_s > 0 else ()
            started_at, cpu_before = clock.wall(), time.process_time()
            began = clock.monotonic()
            drive = runner.run(run.drive(hooks, pages, scraping.every_s, authorization(api_key)))
            cpu_share = (time.process_time() - cpu_before) / max(1e-9, clock.monotonic() - began)
    facts = facts_of(profile, plan, target, model, started_at, served)
    summary = summarise(
        drive.samples, profile.slo.slos(), drive.window_s, drive.ended_s, drive.interrupted, cpu_share
    )
    result = write_report(folder, facts, summary)
    if run.faults:
        raise EnvironmentFault(f"{run.faults[0]}. The report tells of the whole run, the records do not.")
    return result


def facts_of(
    profile: Profile, plan: Plan, target: str, model: str, started_at: float, served: tuple[str, ...] = ()
) -> RunFacts:
    """What a report says beside its numbers. started_at: Unix seconds. served: the models that the target lists."""
    return RunFacts(
        profile=profile.name,
        target=target,
        model=model,
        seed=profile.seed,
        arrival=profile.arrival,
        rate=profile.rate,
        started_at=started_at,
        toolkit_version=version("mm-serving-toolkit"),
        concurrency=plan.concurrency,
        offer=offer_of(profile, plan),
        images_url=plan.images_url,
        served=served,
        slos=profile.slo.slos(),
    )


def write_report(folder: Path, facts: RunFacts, summary: Summary) -> BenchResult:
    """report.json and report.md, beside the samples they tell of. Raises EnvironmentFault when they cannot be written."""
    beside = Beside(last_check(cache_file(os.environ)), _levels(folder))
    report = json.dumps(to_json(facts, summary, beside), indent=2) + "\n"
    try:
        (folder / "report.json").write_text(report, encoding="utf-8")
        (folder / "report.md").write_text(to_markdown(facts, summary, beside), encoding="utf-8")
    except OSError as error:
        raise EnvironmentFault(f"{folder}: the report cannot be written ({error.strerror}).") from error
    return BenchResult(facts, summary, folder, beside)


def _levels(folder: Path) -> tuple[Level, ...]:
    history = folder / f"{HISTORY}.jsonl"
    if not history.is_file():
        return ()
    with history.open("rb") as lines:
        return levels(orjson.loads(line) for line in lines)


async def served_models(target: str, api_key: str) -> tuple[str, ...]:
    """The models of a ready target. Raises EnvironmentFault, UsageFault (target.py)."""
    client = HttpClient()
    try:
        return await find_models(client, target, authorization(api_key))
    finally:
        await client.close()


@dataclass(frozen=True, slots=True)
class _Run:
    """The timed part."""

    profile: Profile
    plan: Plan
    target: str
    prepared: tuple[Prepared, ...]
    folder: Path
    clock: Clock
    faults: list[str] = field(default_factory=list)  # why records were lost

    async def drive(
        self, hooks: Hooks, pages: tuple[Source, ...], every_s: float, key: tuple[tuple[str, str], ...]
    ) -> Drive:
        profile, clock = self.profile, self.clock
        samples, history = (self._journal(name) for name in (SAMPLES, HISTORY))
        client = HttpClient(clock=clock.monotonic, max_idle_per_host=MAX_IDLE)
        caller = ChatCaller(client, self.target, clock, profile.request_timeout_s)
        caller.build(self.prepared)
        stop = asyncio.Event()

        def ended(sample: LoadSample) -> None:
            samples.append(sample.to_dict())
            hooks.on_sample(sample)
            if hooks.enough():
                stop.set()

        driver = Driver(
            self.prepared,
            caller,
            clock,
            profile.duration_s,
            profile.drain_s,
            on_sample=ended,
            concurrency=self.plan.concurrency,
            comes_back=Returns(profile.returning, profile.seed).at_s,
        )
        scraper = Scraper(client, pages, clock, lambda: driver.started_at, history.append, every_s, key)
        # Bodies and plan live to the end of the run: a collector that walks them in mid-run would delay tokens.
        gc.collect()
        gc.freeze()
        beside = [asyncio.create_task(_tell(driver, hooks.on_progress)), asyncio.create_task(scraper.run())]
        if hooks.on_tick is not None:
            beside.append(asyncio.create_task(_tick(driver, caller, hooks, hooks.on_tick, stop)))
        try:
            with _stop_on_interrupt(stop):
                return await driver.run(stop)
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            hooks.on_progress(driver.progress())
            gc.unfreeze()
            await client.close()
            await asyncio.to_thread(samples.close)
            await asyncio.to_thread(history.close)

    def _journal(self, name: str) -> Journal:
        return Journal(
            self.folder,
            name,
            max_file_bytes=UNLIMITED_BYTES,
            keep_files=1,
            max_queued=SAMPLE_QUEUE,
            on_fault=self.faults.append,
        )


@contextmanager
def _stop_on_interrupt(stop: asyncio.Event) -> Iterator[None]:
    """The first Ctrl-C or SIGTERM ends the run in order; the next one is Python's own."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are somebody else's
        return
    loop = asyncio.get_running_loop()

    def interrupt() -> None:
        for number in ENDS:
            loop.remove_signal_handler(number)
        stop.set()

    before = {number: signal.getsignal(number) for number in ENDS}
    for number in ENDS:
        loop.add_signal_handler(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


async def _tick(
    driver: Driver,
    caller: ChatCaller,
    hooks: Hooks,
    on_tick: Callable[[float, Sequence[int]], None],
    stop: asyncio.Event,
) -> None:
    while not stop.is_set():
        on_tick(driver.progress().elapsed_s, caller.waiting())
        if hooks.enough():
            stop.set()
        await asyncio.sleep(PROGRESS_EVERY_S)


async def _tell(driver: Driver, on_progress: Callable[[Progress], None]) -> None:
    while True:
        await asyncio.to_thread(on_progress, driver.progress())  # a terminal may be slow
        await asyncio.sleep(PROGRESS_EVERY_S)
