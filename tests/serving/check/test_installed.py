"""What rules say of SGLang, beside the installed one: names, values, and the lines that reasons point at."""

import ast
import re

import pytest

from serving.check import arguments
from serving.check.arguments import Arguments
from serving.check.measure_rules import SGLANG_ITL, SGLANG_TTFT
from serving.check.model_rules import ENCODABLE
from serving.check.table import RULES
from serving.check.time_rules import SGLANG_PATIENCE_S, WATCHDOG, WATCHDOG_S
from serving.check.words import grouped
from serving.config import ServeConfig
from serving.engines.commands import Host, launches
from serving.topology import ENGINE_PYTHON, ROOT

PACKAGES = sorted((ROOT / ENGINE_PYTHON).parent.parent.glob("lib/python3*/site-packages/sglang"))

pytestmark = pytest.mark.skipif(not PACKAGES, reason="SGLang is not installed here (.venv-engine)")


def lines(file: str) -> list[str]:
    return (PACKAGES[0] / file).read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def known() -> Arguments:
    table = arguments.read(PACKAGES[0])
    assert table is not None
    return table


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_names_what_this_sglang_has(rule, known: Arguments) -> None:
    """Flags by their full names; variables by those that SGLang declares (Mooncake's are in its library)."""
    declared = "\n".join(lines("srt/environ.py"))

    assert [flag for flag in rule.flags if known.names.get(flag) != flag] == []
    assert [
        name for name in rule.variables if name.startswith("SGLANG_") and f"{name} =" not in declared
    ] == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_reason_stands_where_it_says(rule) -> None:
    """The named line of SGLang holds the text; a file of ours is there. If not, look at the rule anew."""
    for source in rule.sources:
        if source.text:
            file, _, number = source.place.partition(":")
            assert source.text in lines(file)[int(number) - 1], (
                f"{source.place}: {lines(file)[int(number) - 1]}"
            )
        elif not source.place.startswith("https://"):
            assert (ROOT / source.place).is_file()


def test_a_typed_flag_is_read_as_sglang_reads_it(known: Arguments) -> None:
    """Aliases, and abbreviations that mean one flag."""
    meant = {
        word: known.full(word)
        for word in ("--model", "--tp", "--max-queued", "--max", "--kv-cach", "--nothing")
    }

    assert meant == {
        "--model": "--model-path",
        "--tp": "--tp-size",
        "--max-queued": "--max-queued-requests",
        "--max": None,
        "--kv-cach": "--kv-cache-dtype",
        "--nothing": None,
    }


def test_what_we_start_engines_with_is_known(known: Arguments) -> None:
    """So the check never refuses our own words."""
    started = [
        one
        for gpu in (False, True)
        for one in launches(ServeConfig(), Host(gpu=gpu, python="python"), "/m", "m", range(18000, 18100))
    ]

    assert {flag for one in started for flag, _ in grouped(one.argv[3:]) if flag not in known.names} == set()


def test_the_models_with_an_encoder_of_their_own() -> None:
    """As SGLang lists them."""
    hook = ast.parse("\n".join(lines("srt/arg_groups/pd_disaggregation_hook.py")))
    listed = [
        {one.value for one in node.elts if isinstance(one, ast.Constant)}
        for node in ast.walk(hook)
        if isinstance(node, ast.List)
    ]

    assert set(ENCODABLE) in listed


def test_the_defaults_that_rules_reckon_with() -> None:
    """Bucket edges, timeouts and the watchdog of this SGLang."""
    collector = "\n".join(lines("srt/observability/metrics_collector.py"))
    environ = "\n".join(lines("srt/environ.py"))
    numbers = [
        tuple(float(number) for number in re.findall(r"[\d.]+", found))
        for found in re.findall(r"bucket_\w+ = \[([\d.,\s]+)\]", collector)
    ]

    assert SGLANG_TTFT in numbers
    assert SGLANG_ITL in numbers
    for name in ("WAITING", "BOOTSTRAP"):
        assert f"SGLANG_DISAGGREGATION_{name}_TIMEOUT = EnvInt({SGLANG_PATIENCE_S:g})" in environ
    device = "".join(lines("srt/arg_groups/fields/device.py"))
    field = WATCHDOG.removeprefix("--").replace("-", "_")
    assert re.search(rf" {field}: A\[[^\]]*\] = {WATCHDOG_S:g}\b", device)
