"""What is written against a trouble."""

from pathlib import Path

from serving.check.fix import Drop, Put, Set, Shell, written
from serving.check.gather import argument_table
from serving.check.words import flags_of
from serving.topology import ROOT
from tests.serving.check.cases import extra
from tests.serving.check.facts import facts, with_table


def test_values_go_with_their_flag(tmp_path: Path) -> None:
    """Of lists, with `=`, and the rest stays as it was written."""
    seen = facts(tmp_path, (extra("--a", "1", "2", "--b=3", "--c", role="decode"),))

    assert written((Drop(("--a", "--b")),), seen) == ('engine.decode.extra_args = ["--c"]',)


def test_a_flag_for_all_engines_wins_over_that_of_a_role(tmp_path: Path) -> None:
    """Else the role's own, later on the line, would."""
    seen = facts(tmp_path, (extra("--a", "1"), extra("--a", "2", role="prefill")))

    assert written((Put("--a", ("3",)),), seen) == (
        'engine.extra_args = ["--a", "3"]',
        "engine.prefill.extra_args = []",
    )
    assert written((Put("--a", ("3",), role="decode"),), seen) == ('engine.decode.extra_args = ["--a", "3"]',)


def test_a_flag_by_another_name_is_the_same_flag(tmp_path: Path) -> None:
    """Aliases and abbreviations, where SGLang's table is here."""
    seen = with_table(facts(tmp_path, (extra("--tensor-parallel-size", "2", "--max-queued", "4"),)))

    assert written((Drop(("--tp-size", "--max-queued-requests")),), seen) == ("engine.extra_args = []",)


def test_the_smaller_of_two_numbers_is_taken_and_toml_is_written(tmp_path: Path) -> None:
    """A bound that two rules lower meets both."""
    fixes = (
        Set("a", 10),
        Set("a", 4_000_000),
        Set("b", "x y"),
        Set("c", False),
        Set("d", 0.5),
        Shell("unset E"),
    )

    assert written((*fixes, Shell("unset E")), facts(tmp_path)) == (
        "a = 10",
        'b = "x y"',
        "c = false",
        "d = 0.5",
        "unset E",
    )


def test_what_is_said_last_counts() -> None:
    """As for argparse."""
    assert flags_of(["--a", "1", "--b", "--a=2"]) == {"--a": ("2",), "--b": ()}


def test_an_interpreter_without_sglang_has_no_table() -> None:
    """This one's, and one that is not there."""
    assert argument_table(str(ROOT / ".venv/bin/python")) is None
    assert argument_table("no-such-python") is None
