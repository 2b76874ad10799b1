"""The search for the peak as it acts: probes a target, writes down what is known after every probe.

DIR holds a run folder per probe (probe-01-4: plan, samples, report) and peak.json, peak.md.
"""

import asyncio
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path

from toolkit.core.clock import SystemClock
from toolkit.core.errors import UsageFault
from toolkit.core.http.client import HttpClient
from workloads.bench import BenchResult, Hooks, Scraping, run_bench
from workloads.compose import compose
from workloads.folders import put
from workloads.peak import Found, Search, Verdict, found, next_step
from workloads.peak_quiet import Quiet
from workloads.peak_report import PEAK_JSON, PEAK_PAGE, ClassReading, PeakReport, Probe, to_json, to_markdown
from workloads.peak_watch import OVERALL, Test, Watch, test_for
from workloads.prepare import authorization
from workloads.profile import Profile
from workloads.report.render import verdict as generator_words
from workloads.returning import Returning
from workloads.scrape import sources
from workloads.target import base_url, find_models

PROBE_S = 300.0
ROOM = 1.5  # times the shortest probe that can decide
QUIET_LIMIT_S = 120.0


@dataclass(frozen=True, slots=True)
class Asked:
    """What the search must show and may spend. low, high: requests/s; None: start / 100, start * 1000.

    probe_s: longest probe, warm-up included; None: PROBE_S, or as long as a slow rate needs to be decided.
    named: what the profile was called, for the command to run next; "": its name.
    """

    objective: float = 0.95
    confidence: float = 0.95
    low: float | None = None
    high: float | None = None
    max_probes: int = 10
    probe_s: float | None = None
    named: str = ""


@dataclass(frozen=True, slots=True)
class Told:
    """What the caller is told. on_probe: probe number and rate, before it; on_done: each probe."""

    on_probe: Callable[[int, float], None] = lambda _, __: None
    on_done: Callable[[Probe], None] = lambda _: None
    hooks: Hooks = field(default_factory=Hooks)


def run_peak(
    profile: Profile,
    url: str,
    folder: Path,
    asked: Asked = Asked(),
    model: str = "",
    api_key: str = "",
    told: Told = Told(),
    runs_dir: Path = Path("runs"),
) -> PeakReport:
    """Search, and leave everything in `folder`. Ctrl-C ends it with what is known; the probe under way is not counted.

    Raises EnvironmentFault when nothing answers, UsageFault for a profile without a rate or a probe too short to decide.
    """
    search, test = _search(profile, asked), _test(profile, asked)
    if asked.probe_s is not None and not 0 < asked.probe_s < math.inf:
        raise UsageFault(f"--probe-seconds {asked.probe_s:g}: a number of seconds, as 300.")
    if asked.probe_s is not None and asked.probe_s < test.needed_s(search.start):
        raise UsageFault(
            f"a probe of {asked.probe_s:g} s cannot decide at {search.start:g}/s: even a faultless server needs "
            f"{test.needed_s(search.start):.0f} s. Give a longer --probe-seconds, or a lower --confidence or --objective."
        )
    if (folder / PEAK_JSON).exists():
        raise UsageFault(f"{folder} holds a search already: name another folder with --out.")
    target = base_url(url)
    run = _Run(profile, target, folder, asked, test, model, api_key, told, runs_dir)
    with asyncio.Runner() as runner:
        client = HttpClient()
        model = runner.run(run.learn_model(client))
        run = replace(run, model=model)
        quiet = Quiet(client, target, model, api_key, sources(target, (), runs_dir), SystemClock())
        folder.mkdir(parents=True, exist_ok=True)
        report = PeakReport(
            profile.name, target, model, profile.seed, asked.objective, asked.confidence, search.low, search.high,
            search.max_probes, test.warmup_s, test.block_s, SystemClock().wall(), version("mm-serving-toolkit"),
            (), Found(None, None, "nothing was probed"), finished=False, interrupted=False, named=asked.named,
        )  # fmt: skip
        hunt = _Hunt(run, search, report)
        try:
            runner.run(quiet.learn())
            hunt.run(lambda: runner.run(quiet.wait(QUIET_LIMIT_S)))
        except KeyboardInterrupt:
            hunt.report = replace(hunt.report, interrupted=True)
        finally:
            runner.run(client.close())
    _write(folder, hunt.report)
    return hunt.report


class _Hunt:
    """One search under way; `report` is what is known at any time."""

    def __init__(self, run: "_Run", search: Search, report: PeakReport) -> None:
        self._run = run
        self._search = search
        self.report = report

    def run(self, wait: Callable[[], float | None]) -> None:
        """To its end. wait: until the target is quiet."""
        while not (self.report.finished or self.report.interrupted):
            tried = [probe.tried for probe in self.report.probes]
            step = next_step(self._search, tried)
            if isinstance(step, Found):
                self.report = replace(self.report, found=step, finished=True)
                return
            number = len(tried) + 1
            self._run.told.on_probe(number, step)
            try:
                probe = self._run.probe(number, step, wait())
            except UsageFault as fault:
                if not tried:
                    raise
                end = found(tried, f"{step:g}/s could not be prepared: {fault.message}")
                self.report = replace(self.report, found=end, finished=True)
                return
            if probe is None:
                self.report = replace(self.report, interrupted=True)
                return
            self._run.told.on_done(probe)
            so_far = found([*tried, probe.tried], "under way")
            self.report = replace(self.report, probes=(*self.report.probes, probe), found=so_far)
            _write(self._run.folder, self.report)


@dataclass(frozen=True, slots=True)
class _Run:
    """What every probe of a search shares."""

    profile: Profile
    target: str
    folder: Path
    asked: Asked
    test: Test
    model: str
    api_key: str
    told: Told
    runs_dir: Path

    async def learn_model(self, client: HttpClient) -> str:
        served = await find_models(client, self.target, authorization(self.api_key))
        return self.model or served[0]

    def probe(self, number: int, rate: float, quiet_after_s: float | None) -> Probe | None:
        """One probe at that rate; None when it was interrupted."""
        longest_s = self.asked.probe_s or max(PROBE_S, ROOM * self.test.needed_s(rate))
        seed = self.profile.seed + number  # the same questions again would meet a warm prefix cache
        # Who comes back is load that the rate does not name.
        update = {"rate": rate, "duration_s": longest_s, "phases": (), "seed": seed, "returning": Returning()}
        profile = self.profile.model_copy(update=update)
        watch = Watch(compose(profile).requests, profile.slo.slos(), self.test)
        hooks = replace(
            self.told.hooks, on_sample=watch.record, on_tick=watch.tick, enough=lambda: watch.decided
        )
        folder = self.folder / f"probe-{number:02d}-{rate:g}"
        result = run_bench(
            profile, self.target, folder, self.model, self.api_key, hooks, Scraping(runs_dir=self.runs_dir)
        )
        if result.summary.interrupted and not watch.decided:
            return None
        watch.finish()
        return _reading(number, rate, watch, result, quiet_after_s)


def _reading(
    number: int, rate: float, watch: Watch, result: BenchResult, quiet_after_s: float | None
) -> Probe:
    generator = result.summary.generator
    verdict = Verdict.SATURATED if generator.saturated else watch.verdict
    return Probe(
        number=number,
        rate=rate,
        verdict=verdict,
        seconds=result.summary.measured_s,
        classes=tuple(
            ClassReading(
                group.name,
                group.known,
                group.bounds,
                group.decision.value,
                group.required,
            )
            for group in watch.groups
        ),
        failed_class=watch.failed_class if verdict is Verdict.FAILED else None,
        misses=dict(watch.misses),
        generator=generator_words(generator),
        quiet_after_s=quiet_after_s,
        folder=result.folder.name,
        why=_why(verdict, watch),
    )


def _why(verdict: Verdict, watch: Watch) -> str:
    if verdict is Verdict.SATURATED:
        return "the generator was late: no verdict on the server"
    spent = ", ".join(f"{code} {count}" for code, count in watch.misses.most_common(3))
    misses = f"missed: {spent}" if spent else "none missed"
    if verdict is Verdict.FAILED:
        where = "" if watch.failed_class in (None, OVERALL) else f"{watch.failed_class} "
        return where + misses
    if verdict is Verdict.UNDECIDED and not any(group.required for group in watch.groups):
        return "too few requests to decide: give a longer --probe-seconds"
    return misses


def _search(profile: Profile, asked: Asked) -> Search:
    if not profile.has_rate:
        raise UsageFault(
            f"profile {profile.name!r} has no rate to search for: its arrivals are recorded or a closed loop."
        )
    low = profile.rate / 100 if asked.low is None else asked.low
    high = profile.rate * 1000 if asked.high is None else asked.high
    try:
        start = min(high, max(low, profile.rate))
        return Search(start, low, high, asked.max_probes)
    except ValueError as error:
        raise UsageFault(f"{error}.") from error


def _test(profile: Profile, asked: Asked) -> Test:
    for name, share in (("objective", asked.objective), ("confidence", asked.confidence)):
        if not 0 < share < 1:
            raise UsageFault(f"--{name} is a share between 0 and 1, as 0.95.")
    slos = profile.slo.slos()
    present = [slos[mix.slo_class] for mix in profile.classes.present().values() if mix.weight]
    return test_for(present, asked.objective, asked.confidence)


def _write(folder: Path, report: PeakReport) -> None:
    put(folder, {PEAK_JSON: json.dumps(to_json(report), indent=2) + "\n", PEAK_PAGE: to_markdown(report)})
