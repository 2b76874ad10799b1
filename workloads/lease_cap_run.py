"""The sweep of lease caps on a running service: set a cap, load it, and again, in turns; then the table.

DIR holds a run folder per leg (leg-01-15: cap of 15 %) and lease-cap.json, lease-cap.md, written after every leg.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson

from toolkit.core.admin import Door, call
from toolkit.core.clock import SystemClock
from toolkit.core.errors import UsageFault
from toolkit.core.http.client import HttpClient
from toolkit.core.journal import read
from toolkit.core.seed import Seeds
from workloads.bench import SAMPLES, Scraping, run_bench
from workloads.lease_cap import CAPS, LONG_LOSS, Leg, Split, advise, read_pages, row
from workloads.lease_cap_page import JSON, Report, write
from workloads.peak_quiet import Quiet
from workloads.prepare import authorization
from workloads.profile import Profile
from workloads.record import LoadSample
from workloads.returning import Returning
from workloads.scrape import HISTORY, sources
from workloads.target import base_url, find_models

SETTING = "lease.cap"
QUIET_LIMIT_S = 120.0
BESIDE_S = 600.0
"""A cap that was set is taken back by the gateway itself this long after its leg should be over, if nobody does before."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What to run. caps: parts of the pool. rounds: legs per cap. long_loss: see lease_cap.advise."""

    split: Split
    caps: tuple[float, ...] = CAPS
    rounds: int = 3
    long_loss: float = LONG_LOSS

    def order(self) -> list[float]:
        """The caps of all legs, each round begun with another: what drifts meets all of them alike."""
        return [
            self.caps[(at + turn) % len(self.caps)]
            for turn in range(self.rounds)
            for at in range(len(self.caps))
        ]


def run_lease_cap(
    profile: Profile,
    url: str,
    folder: Path,
    door: Door,
    asked: Asked,
    model: str = "",
    api_key: str = "",
    on_leg: Callable[[int, int, float], None] = lambda _, __, ___: None,
    runs_dir: Path = Path("runs"),
) -> Report:
    """Sweep, and leave everything in `folder`. Ctrl-C ends it with the legs that are whole. The cap is put back at the end.

    on_leg: told before each leg its number, of how many, and the cap.

    Raises EnvironmentFault when nothing answers, UsageFault for a profile without short or long requests, admin.Refused
    where the token may not change the service.
    """
    target = base_url(url)
    _check(profile, asked)
    if (folder / JSON).exists():
        raise UsageFault(f"{folder} holds a sweep already: name another folder with --out.")
    folder.mkdir(parents=True, exist_ok=True)
    legs: list[Leg] = []
    report = Report(profile.name, target, profile.seed, asked.long_loss, (), None, SystemClock().wall())
    with asyncio.Runner() as runner:
        client = HttpClient()
        model = model or runner.run(find_models(client, target, authorization(api_key)))[0]
        quiet = Quiet(client, target, model, api_key, sources(target, (), runs_dir), SystemClock())
        try:
            runner.run(quiet.learn())
            order = asked.order()
            for number, cap in enumerate(order, 1):
                on_leg(number, len(order), cap)
                runner.run(quiet.wait(QUIET_LIMIT_S))
                # New questions: the same again would meet a warm prefix cache.
                own = profile.model_copy(update={"seed": profile.seed + number, "returning": Returning()})
                with _cap(door, cap, profile.duration_s + profile.drain_s + BESIDE_S):
                    leg = _leg(
                        own,
                        cap,
                        target,
                        folder / f"leg-{number:02d}-{100 * cap:g}",
                        model,
                        api_key,
                        runs_dir,
                    )
                if leg is None:
                    break
                legs.append(leg)
                report = _report(report, legs, asked, whole=number == len(order))
                write(folder, report)
        except KeyboardInterrupt:
            pass
        finally:
            runner.run(client.close())
    return report


def _leg(
    profile: Profile,
    cap: float,
    target: str,
    folder: Path,
    model: str,
    api_key: str,
    runs_dir: Path,
) -> Leg | None:
    """One run at the cap that is set; None when it was interrupted."""
    result = run_bench(profile, target, folder, model, api_key, scraping=Scraping(runs_dir=runs_dir))
    if result.summary.interrupted:
        return None
    samples = [LoadSample.from_dict(record) for record in read(folder / f"{SAMPLES}.jsonl")]
    history = folder / f"{HISTORY}.jsonl"
    with history.open("rb") as lines:
        return Leg(cap, profile.duration_s, samples, read_pages(orjson.loads(line) for line in lines))


def _report(before: Report, legs: Sequence[Leg], asked: Asked, *, whole: bool) -> Report:
    rng = Seeds(before.seed).rng("lease-cap")
    by_cap = [[leg for leg in legs if leg.cap == cap] for cap in asked.caps]
    rows = tuple(row(some, asked.split, rng) for some in by_cap if some)
    return before.with_rows(rows, advise(rows, asked.long_loss) if whole else None)


@contextmanager
def _cap(door: Door, cap: float, at_most_s: float) -> Iterator[None]:
    """The service at that cap, and as it was afterwards."""
    made = call(
        door,
        "POST",
        "/changes",
        {"set": {SETTING: cap}, "reason": "toolkit experiment lease-cap", "for_s": at_most_s},
    )["change"]
    try:
        yield
    finally:
        if made is not None:
            call(
                door,
                "POST",
                f"/changes/{made['id']}/undo",
                {"reason": "toolkit experiment lease-cap: leg over"},
            )


def _check(profile: Profile, asked: Asked) -> None:
    """Raises UsageFault."""
    present = {name for name, mix in profile.classes.present().items() if mix.weight}
    for what, classes in (("short", asked.split.short), ("long", asked.split.long)):
        if not present & classes:
            raise UsageFault(
                f"profile {profile.name!r} has no {what} requests: of its classes ({', '.join(sorted(present))}) none is in"
                f" --{what} {','.join(sorted(classes))}."
            )
    if len(set(asked.caps)) < 2 or not all(0 < cap <= 1 for cap in asked.caps):
        raise UsageFault("--caps are at least two different parts of the pool, as 0.3,0.15,0.08.")
