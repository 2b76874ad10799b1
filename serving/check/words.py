"""A command line as flags with their values (pure)."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from serving.check.arguments import Arguments

SHORT = {"--tp": "--tp-size", "--tensor-parallel-size": "--tp-size", "--model": "--model-path"}
"""Other names of flags that rules read, for where SGLang's table is not here."""

Line = tuple[str, tuple[str, ...]]


def full_name(flag: str, arguments: Arguments | None) -> str:
    """As SGLang's own parser would read the flag; as written where that is not known."""
    known = arguments.full(flag) if arguments is not None else SHORT.get(flag)
    return known or flag


def flags_of(words: Sequence[str], arguments: Arguments | None = None) -> Mapping[str, tuple[str, ...]]:
    """Each flag with its values. A flag that is given twice counts as its last one, as for argparse."""
    return {full_name(flag, arguments): values for flag, values in grouped(words)}


def grouped(words: Iterable[str]) -> list[Line]:
    """Flags as written, in order, each with the values behind it."""
    groups: list[Line] = []
    for word in words:
        if word.startswith("--"):
            flag, equals, value = word.partition("=")
            groups.append((flag, (value,) if equals else ()))
        elif groups:
            groups[-1] = (groups[-1][0], (*groups[-1][1], word))
    return groups


def kept(words: Sequence[str], gone: Collection[str], arguments: Arguments | None) -> tuple[str, ...]:
    """The words without these flags and what stands behind them."""
    stay: list[str] = []
    keeping = True
    for word in words:
        if word.startswith("--"):
            keeping = full_name(word.partition("=")[0], arguments) not in gone
        if keeping:
            stay.append(word)
    return tuple(stay)
