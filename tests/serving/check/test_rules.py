"""Each rule fires on a wrong configuration, and is silent once its own fix is written."""

from pathlib import Path

import pytest

from serving.check.rule import Finding, Needs, Severity
from serving.check.table import RULES, check
from serving.keys import Keys
from tests.serving.check.cases import CASES, QWEN, Case, extra
from tests.serving.check.facts import facts, with_table
from toolkit.core.errors import UsageFault

NEED_A_TABLE = {rule.id for rule in RULES if rule.needs is Needs.ARGUMENTS}


def found(folder: Path, case: Case, lines: tuple[str, ...] = ()) -> tuple[Finding, ...]:
    """What is found once the lines are written too."""
    environment, inside = dict(case.environment), dict(case.inside)
    settings = list(case.settings)
    for line in lines:
        word, _, rest = line.partition(" ")
        name, _, value = rest.partition("=")
        if word in ("export", "unset"):
            environment.pop(name, None)
            for place in (environment, inside) if name in inside else (environment,):
                if word == "export":
                    place[name] = value
        else:
            settings.append(line)
    seen = facts(folder, settings, environment=environment, inside=inside, model=case.model, gpu=case.gpu)
    return check(with_table(seen) if case.rule in NEED_A_TABLE else seen).findings


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_a_rule_fires_and_its_fix_silences_it(case: Case, tmp_path: Path) -> None:
    """The told lines are laid over the settings, as --set does, and over the environment."""
    mine = [one for one in found(tmp_path, case) if one.id == case.rule]
    assert mine
    assert all(one.fix and one.what and one.where for one in mine)

    after = found(tmp_path, case, tuple(line for one in mine for line in one.fix))
    assert case.rule not in {one.id for one in after}


def test_every_rule_has_a_case() -> None:
    """And no case is about a rule that is none. Engines that we start have metrics: test_attached.py."""
    assert {case.rule for case in CASES} == {rule.id for rule in RULES} - {"engine-metrics-off"}


@pytest.mark.parametrize("gpu", [False, True])
def test_what_runs_without_settings_has_no_error(gpu: bool, tmp_path: Path) -> None:
    """Nor any warning on a machine without a GPU."""
    report = check(facts(tmp_path, gpu=gpu, model=QWEN))

    assert not report.of(Severity.ERROR)
    assert {one.id for one in report.of(Severity.WARNING)} == (
        {"image-processor-on-decode"} if gpu else set()
    )


def test_fixes_work_together(tmp_path: Path) -> None:
    """Many mistakes at once, some in the same list: what is told for all of them leaves no error and no warning."""
    case = Case(
        "",
        (
            extra("--kv-cache-dtype", "int8", "--max-queued-requests", "4", "--schedule-policy", "hrrn"),
            extra("--page-size", "8", "--quantization", "fp8", "--page-size", "16", role="decode"),
            extra("--page-size", "1", "--api-key", "secret", role="prefill"),
            "gateway.drain_timeout_s = 2.0",
            "standard.ttft_budget_s = 90.0",
            "access.max_images = 64",
            "model.max_pixels = 12845056",
        ),
        environment={"MC_TRANSFER_TIMEOUT": "120"},
        model=QWEN,
        gpu=True,
    )
    before = facts(tmp_path, case.settings, environment=case.environment, model=QWEN, gpu=True)
    report = check(before)
    grave = {one.id for one in report.findings if one.severity is not Severity.NOTE}
    assert len(grave) >= 9

    left = found(tmp_path, case, report.together)
    assert [one.id for one in left if one.severity is not Severity.NOTE] == []


def test_errors_come_first(tmp_path: Path) -> None:
    """Then warnings, then notes."""
    settings = (extra("--api-key", "k", "--max-queued-requests", "4"),)
    severities = [one.severity for one in check(facts(tmp_path, settings)).findings]

    assert severities == sorted(severities, key=list(Severity).index)
    assert set(severities) == set(Severity)


def test_the_same_trouble_in_two_engines_is_one_finding(tmp_path: Path) -> None:
    """With both names."""
    report = check(facts(tmp_path, (extra("--kv-cache-dtype", "int8"),)))

    assert [one.where for one in report.findings if one.id == "kv-int8"] == [("prefill-0", "decode-0")]


def test_a_bound_that_nobody_set_is_not_complained_about(tmp_path: Path) -> None:
    """And where the cap is too low for usual requests, nothing else proposes fewer images for it."""
    as_shipped = {one.id for one in check(facts(tmp_path, model=QWEN)).findings}
    low_cap = {one.id for one in check(facts(tmp_path, ("lease.cap = 0.05",), model=QWEN)).findings}

    assert not as_shipped & {"images-over-lease", "lease-under-usual"}
    assert low_cap & {"images-over-lease", "lease-under-usual"} == {"lease-under-usual"}


@pytest.mark.parametrize(
    "url",
    ["", "redis://127.0.0.1:6379/0", "unix:///run/valkey", "rediss://user:secret@ledger:6380/0"],
)
def test_a_ledger_on_this_machine_or_with_a_password_is_in_order(url: str, tmp_path: Path) -> None:
    found = check(facts(tmp_path, (f'shared.url = "{url}"',), model=QWEN)).findings

    assert not [one.id for one in found if one.id.startswith("ledger")]


def test_a_keys_file_that_is_proposed_is_told_how_to_write(tmp_path: Path) -> None:
    (found,) = [
        one
        for one in check(facts(tmp_path, ('gateway.host = "0.0.0.0"',))).findings
        if one.id == "gateway-open"
    ]
    assert 'alice = "' in found.why

    with pytest.raises(UsageFault, match=r'there is no such file\. Write it.*name = "'):
        Keys.load(str(tmp_path / "keys.toml"))
