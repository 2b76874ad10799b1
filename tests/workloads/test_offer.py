"""A headline says what was offered, whatever kind of load it was."""

import pytest

from workloads.compose import compose
from workloads.offer import offer_of
from workloads.profile import load_profile

TEXT = "[classes.text_only]\nweight = 1\n"
PHASES = "".join(f"[[phases]]\nduration_s = 10\nshare_of_peak = {share}\n" for share in (0.8, 2.0, 0.8))
RATES = "".join(f"[[phases]]\nduration_s = 10\nrate = {rate}\n" for rate in (2.0, 5.5))
TRACE = 'arrival = "trace"\n[trace]\nfile = "azure-2023-code"\nspeed = 2.0\nlengths = false\n'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("rate = 2.5\n" + TEXT, "poisson arrivals at 2.5/s"),
        ('rate = 2\narrival = "gamma"\n' + TEXT, "gamma arrivals at 2/s"),
        ("rate = 10\n" + TEXT + PHASES, "poisson arrivals, phases 80/200/80 % of a peak of 10/s"),
        ("rate = 10\n" + TEXT + RATES, "poisson arrivals, phases 2/5.5 per second"),
        ("rate = 99\nduration_s = 20\n" + TRACE + TEXT, "trace azure-2023-code x2, 3.15/s in the mean"),
        (
            'rate = 99\nduration_s = 20\narrival = "closed"\nclosed = { concurrency = 8, requests = 5 }\n'
            + TEXT,
            "closed loop of 8",
        ),
    ],
    ids=["poisson", "gamma", "shares of a peak", "rates", "trace", "closed"],
)
def test_what_is_offered(text, told, tmp_path):
    """A rate only where one was asked; else phases, a trace and its speed, or how many are open."""
    path = tmp_path / "mine.toml"
    path.write_text('name = "mine"\n' + text, encoding="utf-8")
    profile = load_profile(str(path))

    assert offer_of(profile, compose(profile)) == told


def test_a_replay_offers_what_was_recorded(tmp_path):
    """The mean of the plan, not a rate that is not used."""
    profile = load_profile("text-only", {"duration_s": 20.0})
    plan = compose(profile)
    (tmp_path / "plan.json").write_bytes(plan.to_json())

    again = profile.model_copy(update={"plan": str(tmp_path / "plan.json"), "rate": 99.0})

    assert offer_of(again, compose(again)) == f"recorded plan, {len(plan.requests) / 20:.3g}/s in the mean"
