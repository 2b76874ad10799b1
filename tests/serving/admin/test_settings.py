"""What may be changed while a gateway runs, and that nothing else may."""

import random

import pytest

from serving.retry_config import RetryConfig
from serving.schedule.configured import rules_of
from serving.schedule.retry import Retries
from tests.serving.admin.settings import configured
from toolkit.core.errors import InvalidRequest


def test_values_are_given_as_json_and_as_serve_toml_says_them():
    """One name and one meaning for a setting, whether it stands in a file or is changed while it runs."""
    changed = configured().changed(
        {"schedule.max_in_flight": "32", "batch.weight": 2, "instance.decode-1.drained": True}
    )

    assert changed.config.schedule.max_in_flight == 32
    assert changed.config.batch.weight == 2.0
    assert changed.instances["decode-1"].drained
    assert changed.values()["schedule.max_in_flight"] == 32


@pytest.mark.parametrize(
    ("asked", "param", "told"),
    [
        ({"schedule.max_in_flite": 3}, "schedule.max_in_flite", "did you mean 'schedule.max_in_flight'"),
        ({"gateway.port": 1}, "gateway.port", "put it into serve.toml and restart"),
        ({"model.served_name": "x"}, "model.served_name", "put it into serve.toml and restart"),
        ({"gatewayy": 1}, "gatewayy", "no such setting"),
        ({"retry.window_s": 1}, "retry.window_s", "while the gateway runs"),
        (
            {"instance.decode-7.drained": True},
            "instance.decode-7.drained",
            "one of decode-0, decode-1, prefill-0",
        ),
        ({"schedule.max_in_flight": 0}, "schedule.max_in_flight", "schedule.max_in_flight"),
        ({"instance.decode-1.weight": 0}, "instance.decode-1.weight", "weight"),
        ({"retry.cap_s": 0.001}, "retry.cap_s", "cap_s"),
        ({"schedule": 3}, "schedule", "schedule"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_changes(asked, param, told):
    """A set is taken whole or not at all."""
    settings = configured()
    before = settings.values()

    with pytest.raises(InvalidRequest) as refused:
        settings.changed({**asked, "batch.weight": 9})

    assert told in refused.value.message
    assert refused.value.param == param
    assert settings.values() == before


def test_a_pools_share_is_changed_by_its_name():
    """As in serve.toml, where pools are a list."""
    pools = [{"name": "text", "classes": ["text"]}, {"name": "image", "classes": ["image"], "share": 2}]
    settings = configured(pools=pools)

    changed = settings.changed({"pool.image.share": 3})

    assert settings.values()["pool.image.share"] == 2.0
    assert rules_of(changed.config).shares == {"text": 1.0, "image": 3.0}
    with pytest.raises(InvalidRequest, match=r"  pool\.image\.share: .*\(got 0\)"):
        settings.changed({"pool.image.share": 0})


def other(value: object) -> object:
    """Another value that the same setting may have."""
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else value * 0.9  # type: ignore[operator]


def test_every_setting_reaches_who_acts_on_it():
    """None is taken and then forgotten: it changes the scheduler's rules, the retry policy, or an SLO class's section,
    which are read where they are used."""
    settings = configured()
    for key, value in settings.values().items():
        section, _, field = key.partition(".")
        if section == "instance":
            continue
        changed = settings.changed({key: other(value)}).config
        assert getattr(getattr(changed, section), field) != value
        acts = rules_of(changed) != rules_of(settings.config) or changed.retry != settings.config.retry
        assert acts or section in ("realtime", "standard", "batch"), key


def test_retry_bounds_change_and_what_was_counted_counts_on():
    """A smaller budget holds at once; requests that came before still earn their share."""
    retries = Retries(RetryConfig(budget_share=0.5, budget_least=0), random.Random(1))
    for _ in range(10):
        retries.arrived(1.0)
    retries.retune(RetryConfig(budget_share=0.1, budget_least=0))

    assert retries.left(1.0) == 1
