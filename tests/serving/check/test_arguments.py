"""SGLang's argument table, read without importing it."""

from pathlib import Path

from serving.check.arguments import read

FIELDS = """
class Schedule(msgspec.Struct):
    _NS_PATH = "schedule"
    tp_size: A[int, Arg(help="GPUs.", aliases=["--tensor-parallel-size"])] = 1
    model_path: A[str, Arg(help="Weights.", aliases=["--model"])]
    backend: A[str, Arg(help="How.", choices=BACKENDS)] = "a"
    policy: A[str, Arg(choices=["fcfs", "lpm"])] = "fcfs"
    mode: A[Optional[Literal["null", "prefill"]], "Role."] = "null"
    tf32: A[Optional[bool], Arg(help="Or not.", action=argparse.BooleanOptionalAction)] = None
    gemm: A[str, Arg(help="x", cli_name="--fp8-gemm")] = ""
    secret: A[int, Arg(no_cli=True)] = 0
    _internal: int = 3
    rank: A[int, Derived(doc="later")] = 0
"""


def package(folder: Path) -> Path:
    fields = folder / "srt/arg_groups/fields"
    fields.mkdir(parents=True)
    (fields / "schedule.py").write_text(FIELDS)
    (folder / "srt/arg_groups/choices.py").write_text('BACKENDS = ["a", "b"]\n')
    (folder / "srt/server_args.py").write_text(
        'parser.add_argument("--config", type=str)\nother.add("--no")\n'
    )
    return folder


def test_names_and_choices_are_read_from_the_source(tmp_path: Path) -> None:
    """Aliases, other names, negations and arguments added by hand; nothing that has no flag."""
    table = read(package(tmp_path))

    assert table is not None
    assert dict(table.names) == {
        "--tp-size": "--tp-size",
        "--tensor-parallel-size": "--tp-size",
        "--model-path": "--model-path",
        "--model": "--model-path",
        "--backend": "--backend",
        "--policy": "--policy",
        "--mode": "--mode",
        "--tf32": "--tf32",
        "--no-tf32": "--tf32",
        "--fp8-gemm": "--fp8-gemm",
        "--config": "--config",
    }
    assert dict(table.choices) == {
        "--backend": ("a", "b"),
        "--policy": ("fcfs", "lpm"),
        "--mode": ("null", "prefill"),
    }


def test_another_sglang_is_no_table(tmp_path: Path) -> None:
    """A folder that is arranged otherwise, or is not there: rules that need the table say that they could not look."""
    (tmp_path / "srt").mkdir()

    assert read(tmp_path) is None
    assert read(tmp_path / "nothing") is None


def test_an_abbreviation_of_several_flags_is_none(tmp_path: Path) -> None:
    """As argparse refuses it."""
    table = read(package(tmp_path))

    assert table is not None
    assert (table.full("--po"), table.full("--m"), table.full("--model")) == (
        "--policy",
        None,
        "--model-path",
    )
