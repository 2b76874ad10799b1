"""`toolkit surge`: 80 % of the peak, 200 % at once, 80 % again, and a verdict."""

import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from toolkit.cli.console import FAILED, INTERRUPTED, RUNS


def surge(
    peak: Annotated[float | None, typer.Option(min=0.01, help="The service's peak, requests per second. Default: what `toolkit peak` last found for this profile and target.")] = None,
    profile: Annotated[str, typer.Option("--profile", "-p", help="A built-in profile's name, or a .toml file, with the phases of a surge.")] = "surge",
    time_scale: Annotated[float, typer.Option(min=0.01, max=10, help="1: 10, 5 and 20 minutes; 0.1: a tenth of that.")] = 1.0,
    url: Annotated[str, typer.Option("--url", "--target", help="Base URL of an OpenAI-compatible server. Default: the service started last.")] = "",
    model: Annotated[str, typer.Option(help="Model to ask for. Default: the first that the target lists.")] = "",
    seed: Annotated[int | None, typer.Option(help="Seed of every draw, instead of the profile's.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder. Default: runs/surge-DATE-TIME.")] = None,
    api_key: Annotated[str, typer.Option(envvar="TOOLKIT_API_KEY", help="Key for the target.")] = "",
    scrape: Annotated[list[str] | None, typer.Option("--scrape", help="Another /metrics to keep beside the samples, as each engine's where the target is a router; repeatable.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdict as JSON.")] = False,
) -> None:  # fmt: skip
    """Double the peak at once and judge what became of the service: goodput kept, who paid, time to recover.

    Clients that are told to come back later (429 or 503 with Retry-After) do, once: the verdict says how many were admitted.

    The run folder keeps the verdict as surge.txt and surge.json. Exit codes: 0 survived, 1 not, 2 wrong usage, 3 nothing to load, 130 interrupted (then there is no verdict).

    Example: toolkit surge --profile smoke --peak 2 --time-scale 0.1
    """
    import json

    from workloads.bench import Scraping, run_bench
    from workloads.profile import load_profile
    from workloads.surge_report import render, surge_profile, to_dict, verdict_of
    from workloads.target import default_url

    loaded, target = load_profile(profile, {} if seed is None else {"seed": seed}), url or default_url(RUNS)
    if peak is None:
        peak = _known_peak(loaded.name, profile, target)
    chosen = surge_profile(loaded, peak, time_scale)
    folder = out or RUNS / f"surge-{datetime.now().astimezone():%Y%m%d-%H%M%S}"
    result = run_bench(
        chosen,
        target,
        folder,
        model,
        api_key,
        None,
        Scraping(urls=tuple(scrape or ()), runs_dir=RUNS),
    )
    if result.summary.interrupted:
        typer.echo(f"interrupted: no verdict; what was recorded is in {folder}", err=True)
        raise typer.Exit(INTERRUPTED)
    verdict = verdict_of(folder, chosen)
    document = json.dumps(to_dict(verdict), indent=2) + "\n"
    text = render(verdict, peak)
    (folder / "surge.json").write_text(document, encoding="utf-8")
    (folder / "surge.txt").write_text(text + "\n", encoding="utf-8")
    if as_json:
        sys.stdout.write(document)
    else:
        typer.echo(f"{text}\n\nrun folder: {folder}")
    if verdict.failures:
        raise typer.Exit(FAILED)


def _known_peak(name: str, asked: str, url: str) -> float:
    """Raises UsageFault when none was measured."""
    from toolkit.core.errors import UsageFault
    from workloads.peak_report import last_peak
    from workloads.target import base_url

    known = last_peak(RUNS, name, base_url(url))
    if known is None:
        raise UsageFault(
            f"no peak is known of profile {name} at {base_url(url)}: give --peak N, or measure it first with "
            f"`toolkit peak --profile {asked} --target {url}`."
        )
    typer.echo(f"peak {known[0]:g}/s, as measured in {known[1]}", err=True)
    return known[0]
