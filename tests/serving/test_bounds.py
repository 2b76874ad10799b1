"""What cannot work is refused when it is configured, not by each request."""

from pathlib import Path

import pytest

from serving.config import ServeConfig
from serving.promise import promise
from serving.topology import plan
from toolkit.core.config import load
from toolkit.core.errors import InvalidRequest, UsageFault
from toolkit.core.sample import SloClass


@pytest.mark.parametrize(
    "line",
    [
        "standard.weight=1e308",
        "standard.weight=5e-324",
        "standard.short_wait_s=5e-324",
        "batch.ttft_budget_s=1e308",
        "retry.window_s=1e-320",
        "retry.base_s=1e308",
        "lease.look_interval_s=1e308",
        "gateway.drain_timeout_s=1e308",
        "schedule.max_in_flight=1" + "0" * 400,
        'fallback.url="http://h:abc/v1"',
        'fallback.url="http://h:99999/v1"',
    ],
)
def test_a_value_out_of_bounds_is_refused_by_its_key(line: str) -> None:
    """Numbers that overflow in a sum, waits that never end, ports that there are not."""
    with pytest.raises(UsageFault) as refused:
        load(ServeConfig, None, [line], {})

    assert line.partition("=")[0] in str(refused.value)


@pytest.mark.parametrize(
    "line",
    [
        'admin.tokens_file="/nonexist"',
        'fallback.api_key_file="/dev/zero"',
        'fallback.api_key_file="/"',
        'runs_dir="/dev/null/x"',
    ],
)
def test_a_file_that_cannot_be_used_is_told_by_the_plan(line: str) -> None:
    """So `serve --check` and --dry-run tell it too."""
    config = load(ServeConfig, None, ['engine.kind="simulated"', line], {})

    with pytest.raises(UsageFault):
        plan(config, dry=True)


def test_run_folders_may_be_made_in_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    """Only a file in the way is a mistake."""
    lines = ['engine.kind="simulated"', f'runs_dir="{tmp_path}/a/b"']

    assert plan(load(ServeConfig, None, lines, {}), dry=True).engines


@pytest.mark.parametrize("empty", range(3))
def test_an_empty_header_is_a_mistake_whichever_it_is(empty: int) -> None:
    """A client that means the default leaves it out."""
    slo, budget, degrade = ("" if empty == place else None for place in range(3))

    with pytest.raises(InvalidRequest):
        promise(slo, budget, SloClass.STANDARD, dict.fromkeys(SloClass, 1.0), degrade)
