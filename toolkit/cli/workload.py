"""`toolkit workload`: what a profile asks, and a recorded run again."""

import json
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.cli.console import RUNS, console

if TYPE_CHECKING:
    from workloads.show import Description, Group, Spread

app = typer.Typer(help="Look at workloads, and repeat recorded ones.", no_args_is_help=True)

REFERENCE = "text-only"
LATEST = "latest"
BAR = 40


@app.command()
def show(
    profile: Annotated[str, typer.Argument(help="A built-in profile's name, a .toml file, or a run's folder.")],
    rate: Annotated[float | None, typer.Option(help="Requests per second, instead of the profile's.")] = None,
    duration: Annotated[float | None, typer.Option(help="Seconds of load, instead of the profile's.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of every draw, instead of the profile's.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:  # fmt: skip
    """Print what a profile asks: counts, token lengths and images per class, and how its arrivals scatter.

    Example: toolkit workload show mixed
    """
    from toolkit.core.errors import UsageFault
    from workloads.compose import compose
    from workloads.offer import offer_of
    from workloads.profile import load_profile
    from workloads.show import describe

    asked = {"rate": rate, "duration_s": duration, "seed": seed}
    chosen = load_profile(profile, {key: value for key, value in asked.items() if value is not None})
    plan = compose(chosen)
    if not plan.requests:
        raise UsageFault("the plan has no request: ask for a higher rate or a longer duration.")
    shown, reference = describe(plan, offer_of(chosen, plan)), describe(compose(load_profile(REFERENCE)))
    ratios = {
        "prompt_tokens": _ratio(shown.everything.prompt_tokens, reference.everything.prompt_tokens),
        "text_tokens": _ratio(shown.everything.text_tokens, reference.everything.text_tokens),
    }
    if as_json:
        typer.echo(json.dumps({**shown.to_json(), "variance_over_text_only": ratios}, indent=2))
    else:
        _print(shown, ratios)


@app.command()
def replay(
    run: Annotated[Path, typer.Argument(help="The folder of a bench run, its name under runs/, or latest: the newest there.")],
    url: Annotated[str, typer.Option("--url", "--target", help="Base URL of an OpenAI-compatible server. Default: the service started last, else http://127.0.0.1:8000.")] = "",
    model: Annotated[str, typer.Option(help="Model to ask for. Default: the first that the target lists.")] = "",
    out: Annotated[Path | None, typer.Option(help="Run folder. Default: runs/bench-DATE-TIME.")] = None,
    api_key: Annotated[str, typer.Option(envvar="TOOLKIT_API_KEY", help="Key for the target.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print report.json instead of the table.")] = False,
) -> None:  # fmt: skip
    """Repeat a recorded run exactly: the same requests, the same bytes, at the same times.

    Example: toolkit workload replay runs/bench-20261130-031351 --url http://127.0.0.1:8000

    Exit codes: those of `toolkit bench`.
    """
    from toolkit.cli.bench import bench
    from toolkit.core.errors import UsageFault

    newest = _recorded(RUNS)
    candidates = (run, RUNS / run, *(newest[:1] if str(run) == LATEST else ()))
    folder = next((found for found in candidates if (found / "plan.json").is_file()), None)
    if folder is None:
        told = (
            f"the newest is {newest[0]}"
            if newest
            else f"there is none in {RUNS} yet: `toolkit bench` makes one"
        )
        raise UsageFault(
            f"{run}: no folder of a bench run here or under {RUNS} (no plan.json in it); {told}."
        )
    bench(profile=str(folder), url=url, model=model, out=out, api_key=api_key, as_json=as_json)


def _recorded(runs_dir: Path) -> list[Path]:
    """The folders of bench runs there, newest first."""
    plans = [(plan.stat().st_mtime, plan.parent) for plan in runs_dir.glob("bench-*/plan.json")]
    return [folder for _, folder in sorted(plans, reverse=True)]


def _ratio(one: "Spread", other: "Spread") -> float:
    return one.variance / other.variance


def _print(shown: "Description", ratios: dict[str, float]) -> None:
    from rich import box
    from rich.table import Table

    screen = console()
    total = shown.everything
    lines = [
        f"{shown.name}: {total.requests} requests in {shown.duration_s:g} s, {shown.arrivals}, seed {shown.seed}"
    ]
    if not shown.concurrency:
        lines.append(
            f"gaps between arrivals vary by {shown.gap_cv:.2f} of their mean (Poisson: 1); "
            f"arrivals per second: variance {shown.dispersion:.2f} of the mean (Poisson: 1)"
        )
    screen.print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)
    table = Table(box=box.SIMPLE_HEAD, padding=0)  # all classes fit 80 columns
    table.add_column("")
    for group in shown.groups:
        table.add_column(group.name, justify="right")
    for name, *cells in zip(ROWS, *(_cells(group) for group in shown.groups), strict=True):
        table.add_row(name, *cells)
    expected = [shown.per_second(group) for group in shown.groups]
    for name in expected[0]:
        table.add_row(
            f"{name}/s", *(f"{rates[name]:.{0 if rates[name] >= 100 else 2}f}" for rates in expected)
        )
    screen.print(table)
    _histogram("prompt tokens", [(f"{low}-{2 * low - 1}", n) for low, n in total.bins.items()])
    if not shown.concurrency:
        step = shown.duration_s / len(shown.slices)
        _histogram("arrivals from second", [(f"{i * step:.3g}", n) for i, n in enumerate(shown.slices)])
    screen.print("\n".join(_remarks(shown, ratios)), highlight=False, markup=False, soft_wrap=True)


ROWS = (
    "requests", "share", "SLO class", "prompt tokens p50", "prompt tokens p90", "prompt tokens p99", "prompt tokens max", "prompt variance",
    "text tokens p50", "text tokens p90", "text tokens p99", "text variance", "short texts", "long texts", "images mean", "images p99",
    "megapixels p50", "megapixels p99", "max_tokens p50", "max_tokens p99",
)  # fmt: skip


def _cells(group: "Group") -> list[str]:
    prompt, text, images, pixels, answer = (
        group.prompt_tokens, group.text_tokens, group.images, group.megapixels, group.max_tokens,
    )  # fmt: skip
    return [
        str(group.requests), f"{group.share:.1%}", group.slo_classes[0] if len(group.slo_classes) == 1 else "several",
        f"{prompt.p50:.0f}", f"{prompt.p90:.0f}", f"{prompt.p99:.0f}", f"{prompt.max:.0f}", f"{prompt.variance:.3g}",
        f"{text.p50:.0f}", f"{text.p90:.0f}", f"{text.p99:.0f}", f"{text.variance:.3g}",
        f"{group.short_texts:.0%}", f"{group.long_texts:.0%}", f"{images.mean:.2f}", f"{images.p99:.0f}", f"{pixels.p50:.2f}", f"{pixels.p99:.2f}",
        f"{answer.p50:.0f}", f"{answer.p99:.0f}",
    ]  # fmt: skip


def _histogram(title: str, rows: list[tuple[str, int]]) -> None:
    screen = console()
    most = max((count for _, count in rows), default=0)
    width = max(len(label) for label in (title, *(label for label, _ in rows)))
    screen.print(f"{title:>{width}}", highlight=False, markup=False)
    for label, count in rows:
        screen.print(
            f"{label:>{width}} {'█' * round(BAR * count / max(1, most)):<{BAR}} {count}",
            highlight=False,
            markup=False,
        )
    screen.print()


def _remarks(shown: "Description", ratios: dict[str, float]) -> list[str]:
    prompts, texts = ratios["prompt_tokens"], ratios["text_tokens"]
    lines = [
        f"variance of token lengths over {REFERENCE}'s: prompts with images {prompts:.3g} x, text {texts:.3g} x"
    ]
    known = {pair: value for pair, value in shown.rank_correlation.items() if not isnan(value)}
    if known:
        told = ", ".join(f"{pair} {value:.2f}" for pair, value in known.items())
        lines.append(f"rank correlation, requests with images: {told}")
    if shown.repeated_images:
        lines.append(f"images whose bytes came before: {shown.repeated_images:.1%}")
    if shown.conversations:
        lines.append(f"conversations: {shown.conversations}")
    if shown.images_url:
        host = shown.images_url.partition("://")[2]
        lines.append(
            f"images are fetched from {host}: start the gateway with --set 'access.allowed_hosts=[\"{host}\"]'"
        )
    return lines
