"""The table of lease caps and its advice."""

import json
import math
from collections.abc import Iterator

import numpy as np
import pytest

from toolkit.core import names
from toolkit.core.errors import UsageFault
from toolkit.core.sample import SloClass, WorkloadClass
from workloads.lease_cap import Advice, Leg, Pages, Row, Split, advise, read_pages, row
from workloads.lease_cap_page import Report, cells, to_json, to_markdown, verdict
from workloads.lease_cap_run import Asked, _check
from workloads.profile import load_profile
from workloads.record import LoadOutcome, LoadSample
from workloads.surge_figures import Interval

SHORT, LONG = WorkloadClass.TEXT_ONLY, WorkloadClass.MULTI_IMAGE_LONG
SPLIT = Split(frozenset({SHORT}), frozenset({LONG}))
SECONDS = 60.0


def sample(
    index: int, kind: WorkloadClass, ttft_s: float | None = 0.1, code: str | None = None
) -> LoadSample:
    at = index * SECONDS / 100
    return LoadSample(
        index=index,
        workload_class=kind,
        slo_class=SloClass.STANDARD,
        intended_s=at,
        outcome=LoadOutcome.COMPLETED if ttft_s is not None else LoadOutcome.REFUSED,
        ended_s=at + 1,
        sent_s=at,
        token_times_s=() if ttft_s is None else (at + ttft_s,),
        code=code,
    )


def leg(
    cap: float, longs: Iterator[LoadSample] | list[LoadSample], short_s: float | None = 0.1, kv: float = 0.5
) -> Leg:
    shorts = [sample(index, SHORT, short_s if index % 10 else 2 * (short_s or 0)) for index in range(100)]
    return Leg(cap, SECONDS, [*shorts, *longs], Pages(60, 0.6, kv, 0.0))


def figures(
    cap: float, success: float, p95: float, *, kv: float = 0.5, slots: float = 0.0, width: float = 0.05
) -> Row:
    return Row(
        cap,
        3,
        100,
        Interval(success, success, success),
        100,
        Interval(p95, p95 - width, p95 + width),
        0.7,
        kv,
        slots,
    )


def test_success_and_p95_are_those_of_what_was_offered() -> None:
    longs = [
        sample(
            index,
            LONG,
            None if index % 4 == 0 else 0.5,
            "kv_lease_exceeded" if index % 8 == 0 else "queue_full",
        )
        for index in range(40)
    ]
    found = row([leg(0.15, longs), leg(0.15, longs)], SPLIT, np.random.default_rng(1))
    assert (found.runs, found.long_offered, found.short_offered) == (2, 80, 200)
    assert found.long_success.value == 0.75
    assert found.long_success.low < 0.75 < found.long_success.high
    assert found.short_ttft_p95_s.value == pytest.approx(0.2)
    assert found.over_cap == 10, "refused for its size"
    assert found.long_ended["queue_full"] == 10, "told apart from what was refused for want of room"


def test_short_requests_without_a_first_token_count_as_later_than_any() -> None:
    lost = [sample(index, SHORT, None, "budget_exceeded") for index in range(8)]
    found = row([leg(0.15, [sample(1, LONG), *lost])], SPLIT, np.random.default_rng(1))
    assert math.isinf(found.short_ttft_p95_s.value)
    assert "never" in cells(found)[2]


def test_runs_without_one_of_the_kinds_have_no_table() -> None:
    with pytest.raises(ValueError, match="no long"):
        row([leg(0.15, [])], SPLIT, np.random.default_rng(1))


def test_what_binds_is_read_from_the_gateways_pages() -> None:
    def page(waits: int, lack: int, leased: int) -> dict[str, object]:
        series = {
            f'{names.KV_POOL.name}{{decode="a"}}': 1000.0,
            f'{names.KV_LEASED.name}{{decode="a"}}': float(leased),
            f'{names.WAITING.name}{{class="x"}}': float(waits),
            names.KV_WAITING.name: float(lack),
        }
        return {"source": "target", "values": series}

    others: list[dict[str, object]] = [
        {"source": "decode-0", "values": {names.KV_POOL.name: 5.0}},
        {"source": "target", "error": "x"},
    ]
    found = read_pages([page(3, 2, 900), page(0, 0, 500), page(2, 0, 700), page(0, 0, 0), *others])
    assert (found.pages, found.kv_binds, found.slots_bind) == (4, 0.25, 0.25)
    assert found.pool_use == pytest.approx(0.525)
    assert read_pages(others).pages == 0


def test_the_articles_figures_give_the_articles_choice() -> None:
    table = [figures(0.30, 0.992, 3.7), figures(0.15, 0.990, 2.1), figures(0.08, 0.850, 1.9)]
    found = advise(table)
    assert found.cap == 0.15
    assert "8% costs 14.2 points" in found.why


def test_among_caps_that_serve_short_ones_alike_the_largest_is_taken() -> None:
    assert advise([figures(0.3, 0.99, 1.02), figures(0.15, 0.99, 1.0)]).cap == 0.3


@pytest.mark.parametrize(
    ("kv", "slots", "told"),
    [
        (0.01, 0.5, "slots were"),
        (0.01, 0.0, "nothing was"),
        (math.nan, math.nan, "tells nothing of its KV pools"),
    ],
)
def test_where_blocks_were_never_short_no_cap_is_recommended(kv: float, slots: float, told: str) -> None:
    found = advise(
        [figures(0.3, 0.99, 2.0, kv=kv, slots=slots), figures(0.15, 0.99, 1.0, kv=kv, slots=slots)]
    )
    assert found.cap is None
    assert told in found.why


def test_the_page_and_the_json_hold_what_is_known() -> None:
    rows = (figures(0.3, 0.99, math.inf, width=0.0), figures(0.15, 0.99, 1.0))
    report = Report("p", "http://x", 1, 0.02, (), None, 0.0)
    assert "no advice" in verdict(report.with_rows(rows, None))
    whole = report.with_rows(rows, Advice(0.15, "because."))
    assert "lease.cap = 0.15" in to_markdown(whole)
    assert "99.0 %, 2.1 s, 78 %" in to_markdown(whole)
    document = json.loads(json.dumps(to_json(whole), allow_nan=False))
    assert document["recommended_cap"] == 0.15
    assert document["rows"][0]["short_ttft_p95_s"]["value"] is None


def test_caps_take_turns() -> None:
    order = Asked(SPLIT, (0.3, 0.15, 0.08), rounds=3).order()
    assert order == [0.3, 0.15, 0.08, 0.15, 0.08, 0.3, 0.08, 0.3, 0.15]


def test_a_profile_without_long_requests_is_refused() -> None:
    with pytest.raises(UsageFault, match="no long requests"):
        _check(load_profile("text-only", {}), Asked(SPLIT))
    with pytest.raises(UsageFault, match="at least two"):
        _check(load_profile("smoke", {}), Asked(SPLIT, (0.3,)))
