"""The load doubled at once, before our gateway and before two routers, on one CPU pair: who still answers anybody?

    python benchmarks/routers/surge.py [--peak 6] [--time-scale 0.1] [--runs 5] [--environments DIR]

One `toolkit serve` with its defaults starts the pair. The same seeded plan, byte for byte, goes through our gateway, then
through sglang-router 0.3.2 and smg 1.13.0 in PD mode before the same engines, each with its own defaults (retries,
breakers, queues). Between two runs the engines must be empty. Without --peak, the peak is the highest of RAMP that keeps
95 % of its SLOs through sglang-router. `--max-queued-requests` of the engines is not set: SGLang ignores it in PD mode.
Ours runs --runs times, each with arrivals of its own but for the first, which all share.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fronts import TOOLKIT, Front, Pair, environment, router, service, wait_idle
from repeated import Repeat, repeat_of, section

from toolkit.core.journal import read
from workloads.profile import load_profile
from workloads.record import LoadSample
from workloads.surge_report import shots

HERE = Path(__file__).parent
RESULT = HERE.parent / "results" / "surge-routers.md"
PROFILE = HERE / "surge.toml"
SGLANG_ROUTER, SMG = "sglang-router==0.3.2", "smg==1.13.0"
OURS = "toolkit gateway"
REAL = "real SGLang 0.5.23 pair (tiny vision-language model on CPUs)"

RAMP = (2.0, 3.0, 4.0, 5.0, 6.5, 8.0, 10.0)  # requests per second
RAMP_S, RAMP_KEPT = 12.0, 0.95
EMPTY_WITHIN_S = 150.0
BIN_S = 10.0
BASELINE_S, SURGE_S = 600.0, 300.0
"""Of surge.toml, before --time-scale."""


@dataclass(frozen=True)
class Run:
    """One front under the surge. emptied_s: how long the engines were busy afterwards; None: still, when we gave up."""

    front: str
    verdict: dict[str, Any]
    total: dict[str, Any]
    returned: dict[str, int]
    timeline: tuple[tuple[float, float, float], ...]  # from, offered per second, good per second
    load: tuple[float, float]
    emptied_s: float | None
    repeat: Repeat


def surge(front: Front, pair: Pair, peak: float, time_scale: float, work: Path, seed: int = 1) -> Run:
    out = work / f"{front.name.replace(' ', '-').replace('==', '-')}-{seed}"
    before = os.getloadavg()[0]
    command = [
        *(str(TOOLKIT), "surge", "--profile", str(PROFILE), "--peak", f"{peak:g}"),
        *("--time-scale", f"{time_scale:g}", "--target", front.url, "--out", str(out), "--json"),
        *("--seed", str(seed)),
        *(word for url in front.scrape for word in ("--scrape", url)),
    ]
    done = subprocess.run(command, cwd=work, check=False, capture_output=True, text=True)
    if done.returncode not in (0, 1):  # 1: the surge was not survived, which is what we came to see
        raise SystemExit(f"{' '.join(command)}: {done.stderr[-2000:]}")
    report = json.loads((out / "report.json").read_text(encoding="utf-8"))
    verdict = json.loads(done.stdout)
    begin_s, long_s = (time_scale * seconds for seconds in (BASELINE_S, SURGE_S))
    run = Run(
        front.name,
        verdict,
        report["total"],
        report["returned"],
        timeline(out),
        (before, os.getloadavg()[0]),
        wait_idle(pair, EMPTY_WITHIN_S),
        repeat_of(seed, verdict, peak, samples_of(out), (begin_s, begin_s + long_s)),
    )
    print(f"{front.name}, seed {seed}: {run.verdict['failures'] or 'survived'}", file=sys.stderr)
    return run


def timeline(out: Path) -> tuple[tuple[float, float, float], ...]:
    """Offered and good requests per second, by the second they were due."""
    profile = load_profile(str(out / "profile.toml"))
    bins: dict[int, list[bool]] = {}
    for shot in shots([sample for sample in samples_of(out) if sample.first], profile.slo.slos()):
        bins.setdefault(int(shot.at_s // BIN_S), []).append(shot.good)
    return tuple((at * BIN_S, len(seen) / BIN_S, sum(seen) / BIN_S) for at, seen in sorted(bins.items()))


def samples_of(out: Path) -> list[LoadSample]:
    return [LoadSample.from_dict(record) for record in read(out / "samples.jsonl")]


def flat_load(front: Front, pair: Pair, rate: float, seconds: float, work: Path, name: str) -> float:
    """The share of SLOs kept under the same mix at one rate."""
    flat = work / "flat.toml"
    text = PROFILE.read_text(encoding="utf-8").split("[[phases]]")
    flat.write_text(text[0] + "[slo" + text[-1].partition("[slo")[2], encoding="utf-8")
    command = [
        str(TOOLKIT),
        "bench",
        "--profile",
        str(flat),
        "--rate",
        f"{rate:g}",
        "--duration",
        f"{seconds:g}",
    ]
    command += ["--target", front.url, "--out", str(work / name), "--json", "--scrape-every", "0"]
    done = subprocess.run(command, cwd=work, check=False, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(command)}: {done.stderr[-2000:]}")
    wait_idle(pair, EMPTY_WITHIN_S)
    kept = float(json.loads(done.stdout)["total"]["attainment"])
    print(f"{name}: {rate:g}/s, {kept:.0%} of SLOs kept", file=sys.stderr)
    return kept


def find_peak(front: Front, pair: Pair, work: Path) -> tuple[float, list[tuple[float, float]]]:
    """The highest rate of RAMP before the first that keeps too little, and what each kept."""
    tried: list[tuple[float, float]] = []
    for rate in RAMP:
        tried.append((rate, flat_load(front, pair, rate, RAMP_S, work, f"ramp-{rate:g}")))
        if tried[-1][1] < RAMP_KEPT:
            break
    kept = [rate for rate, share in tried if share >= RAMP_KEPT]
    if not kept:
        raise SystemExit(f"even {RAMP[0]:g}/s keeps only {tried[0][1]:.0%}: this machine is too busy now")
    return kept[-1], tried


def page(runs: list[Run], again: list[Run], peak: float, time_scale: float, how: str, engines: str) -> str:
    """runs: one of each front. again: further ones of the first."""
    columns = [run.front for run in runs]
    told = (
        f"`benchmarks/routers/surge.py`, {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC: {os.cpu_count()} cores "
        f"({platform.machine()}), Python {platform.python_version()}, one {engines}, 40 % text, 40 % one 448x448 image, 20 % "
        f"four, TTFT within 3 s of the intended arrival. Peak {peak:g}/s ({how}); {0.8 * peak:g}/s for {600 * time_scale:g} s, "
        f"{2 * peak:g}/s for {300 * time_scale:g} s, {0.8 * peak:g}/s for {1200 * time_scale:g} s. The same plan to the byte "
        "for all. Everything, the clients too, shares the cores; what else ran shows in the load averages. Read ratios and "
        "shapes, not seconds."
    )
    lines = [
        "# The load doubled at once, through our gateway and through two routers",
        "",
        textwrap.fill(told, 118),
        "",
        "| | " + " | ".join(columns) + " |",
        "|---|" + "---|" * len(columns),
    ]
    lines += [f"| {name} | " + " | ".join(cells) + " |" for name, cells in rows(runs)]
    lines += ["", "## What each did not pass", ""]
    for run in runs:
        failed = run.verdict["failures"] or ["nothing: it survived the surge"]
        lines += [f"- {run.front}: " + "; ".join(failed) + "."]
        lines += [f"  - {note}." for note in run.verdict["notes"]]
        lines += [
            f"  - {what}: not measurable, {why}." for what, why in run.verdict["not_measurable"].items()
        ]
    if again:
        lines += ["", *section(runs[0].front, [one.repeat for one in (runs[0], *again)])[:-1]]
    lines += ["", f"## Good requests per second, by when they were due (steps of {BIN_S:g} s)", ""]
    lines += ["| from s | offered | " + " | ".join(columns) + " |", "|---|---|" + "---|" * len(columns)]
    for at, offered, _ in runs[0].timeline:
        good = ({start: value for start, _, value in run.timeline}.get(at, 0.0) for run in runs)
        lines.append(f"| {at:g} | {offered:.1f} | " + " | ".join(f"{one:.1f}" for one in good) + " |")
    return "\n".join([*lines, ""])


def rows(runs: list[Run]) -> list[tuple[str, list[str]]]:
    """One row per figure, one cell per run."""

    def row(name: str, cell: Any) -> tuple[str, list[str]]:
        return name, [str(cell(run, run.verdict)) for run in runs]

    classes = [one["class"] for one in runs[0].verdict["surge"]["classes"]]
    return [
        row("verdict", lambda _, v: "survived" if v["passed"] else "**not survived**"),
        row("baseline goodput /s", lambda _, v: _span(v["baseline"]["goodput_per_s"])),
        row("baseline SLO kept", lambda _, v: _span(v["baseline"]["attainment"], "%")),
        row("surge goodput /s", lambda _, v: _span(v["surge"]["goodput_per_s"])),
        row("kept of the baseline's", lambda _, v: _span(v["surge"]["kept"], "%")),
        row("time to breach", lambda _, v: _seconds(v["surge"]["breached_after_s"], "none")),
        row("longest time without a good request", lambda _, v: _barren(v["longest_without_good"])),
        row("recovered after", lambda _, v: _seconds(v["recovered_after_s"], "not before the end")),
        row("came back after a Retry-After", lambda run, _: run.returned["came_back"]),
        row("of them admitted", lambda _, v: _span(v["surge"]["honest_429"], "%")),
        row("largest queue seen", lambda _, v: _queue(v["largest_queue"])),
        row("attempts per request, baseline", lambda _, v: _attempts(v, "baseline")),
        row("attempts per request, from the surge on", lambda _, v: _attempts(v, "surge")),
        *(
            row(f"{name}: offer / goodput", lambda _, v, n=n: _share(v["surge"]["classes"][n]))
            for n, name in enumerate(classes)
        ),
        row("failures of the whole run", lambda run, _: _failed(run.total["failed"])),
        row(
            "engines empty after", lambda run, _: _seconds(run.emptied_s, f"not within {EMPTY_WITHIN_S:g} s")
        ),
        row("load average, begin / end", lambda run, _: f"{run.load[0]:.1f} / {run.load[1]:.1f}"),
    ]


def _span(interval: dict[str, float] | None, unit: str = "") -> str:
    if interval is None:
        return "nobody came back"
    shape = "{:.0%}" if unit else "{:.2f}"
    value, low, high = (shape.format(interval[key]) for key in ("value", "low", "high"))
    return f"{value} ({low} to {high})"


def _seconds(value: float | None, otherwise: str) -> str:
    return otherwise if value is None else f"{value:.0f} s"


def _barren(barren: dict[str, float] | None) -> str:
    return "none" if barren is None else f"{barren['length_s']:.0f} s ({barren['requests']} came)"


def _queue(queue: dict[str, Any] | None) -> str:
    return "not measurable" if queue is None else f"{queue['count']} at {queue['at_s']:.0f} s"


def _attempts(verdict: dict[str, Any], stretch: str) -> str:
    seen = verdict["retry_amplification"]
    return "not measurable" if seen is None else f"{seen[stretch]:.2f}"


def _share(one: dict[str, Any]) -> str:
    return f"{one['offered']:.0%} / " + ("-" if one["good"] is None else f"{one['good']:.0%}")


def _failed(failed: dict[str, int]) -> str:
    return ", ".join(f"{code} {count}" for code, count in failed.items()) or "none"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peak", type=float, help="requests per second; default: a quick ramp finds it")
    parser.add_argument("--time-scale", type=float, default=0.1)
    parser.add_argument("--runs", type=int, choices=range(1, 11), default=1, help="of our gateway")
    parser.add_argument("--environments", type=Path, default=Path("/tmp/toolkit-routers"))
    parser.add_argument("--work", type=Path, help="run folders; default: below --environments")
    parser.add_argument(
        "--set", action="append", default=[], help="a setting of the service, as for toolkit serve"
    )
    options = parser.parse_args()
    work = options.work or options.environments / time.strftime("runs-%Y%m%d-%H%M%S")
    work.mkdir(parents=True)
    launches = {
        SGLANG_ROUTER: ("python", "-m", "sglang_router.launch_router"),
        SMG: ("smg", "launch"),
    }
    homes = {package: environment(options.environments, package) for package in launches}
    with service(work, options.set) as pair:

        def started(package: str) -> Any:
            first, *rest = launches[package]
            return router(package, [str(homes[package] / first), *rest], pair, work / f"{package}.log")

        # What an engine meets for the first time costs it seconds: that is nobody's surge.
        flat_load(Front(OURS, pair.gateway), pair, 1.0, 20.0, work, "warm-up")
        peak, how = options.peak, "given"
        if peak is None:
            with started(SGLANG_ROUTER) as front:
                peak, tried = find_peak(front, pair, work)
            how = "the last of " + ", ".join(f"{rate:g}/s {share:.0%}" for rate, share in tried)
            how += f" that kept {RAMP_KEPT:.0%} through sglang-router"
        runs = [surge(Front(OURS, pair.gateway), pair, peak, options.time_scale, work)]
        for package in launches:
            with started(package) as front:
                runs.append(surge(front, pair, peak, options.time_scale, work))
        again = [
            surge(Front(OURS, pair.gateway), pair, peak, options.time_scale, work, seed)
            for seed in range(2, options.runs + 1)
        ]
    engines = "pair of stand-ins (SIMULATED: no figure of any hardware)" if pair.simulated else REAL
    text = page(runs, again, peak, options.time_scale, how, engines)
    (work / RESULT.name).write_text(text, encoding="utf-8")
    if not pair.simulated:
        RESULT.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
