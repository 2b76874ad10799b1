"""SGLang's own argument table, read out of its source without importing it: names, aliases, choices.

SGLang declares each argument as a field `name: A[type, Arg(...)]` of a class in srt/arg_groups/fields, and some by hand in
srt/server_args.py. Reading them takes 50 ms; importing SGLang takes seconds and torch.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

FIELDS, CHOICES, BY_HAND = "srt/arg_groups/fields", "srt/arg_groups/choices.py", "srt/server_args.py"


@dataclass(frozen=True, slots=True)
class Arguments:
    """names: every way to write a flag -> its full name. choices: full name -> the values it takes, where it is limited."""

    names: Mapping[str, str]
    choices: Mapping[str, tuple[str, ...]]

    def full(self, flag: str) -> str | None:
        """The flag's full name; an abbreviation is read as argparse reads it. None: no such flag, or several."""
        if flag in self.names:
            return self.names[flag]
        meant = {self.names[name] for name in self.names if name.startswith(flag)}
        return meant.pop() if len(meant) == 1 else None


def read(package: Path) -> Arguments | None:
    """Of the sglang package in that folder; None where it is none, or is arranged in another way."""
    try:
        constants = dict(_constants(_parsed(package / CHOICES)))
        names: dict[str, str] = {}
        choices: dict[str, tuple[str, ...]] = {}
        for file in sorted((package / FIELDS).glob("*.py")):
            for written, allowed in _declared(_parsed(file), constants):
                names |= dict.fromkeys(written, written[0])
                if allowed:
                    choices[written[0]] = allowed
        for flag in _by_hand(_parsed(package / BY_HAND)):
            names.setdefault(flag, flag)
    except (OSError, SyntaxError, UnicodeDecodeError):
        return None
    return Arguments(names, choices) if "--model-path" in names else None


def _parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def _constants(module: ast.Module) -> Iterator[tuple[str, tuple[str, ...]]]:
    for node in module.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, _strings(node.value)


def _declared(
    module: ast.Module, constants: Mapping[str, tuple[str, ...]]
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Every way to write each flag, its full name first, and its choices."""
    fields = (node for one in module.body if isinstance(one, ast.ClassDef) for node in one.body)
    for field in fields:
        if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
            continue
        kind = field.annotation
        if not (isinstance(kind, ast.Subscript) and isinstance(kind.slice, ast.Tuple)):
            continue
        details = next((one for one in kind.slice.elts if isinstance(one, ast.Call)), None)
        options = {one.arg: one.value for one in details.keywords} if details is not None else {}
        if "no_cli" in options or (details is not None and _name(details.func) != "Arg"):
            continue
        own = _strings(options.get("cli_name")) or (f"--{field.target.id.replace('_', '-')}",)
        written = (*own, *_strings(options.get("aliases")))
        if _name(options.get("action")) == "BooleanOptionalAction":
            written = (*written, *(f"--no-{flag[2:]}" for flag in written))
        given = options.get("choices")
        allowed = constants.get(_name(given), ()) or _strings(given) or _literal(kind.slice.elts[0])
        yield written, allowed


def _by_hand(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and _name(node.func) == "add_argument":
            for one in node.args:
                yield from (text for text in _strings(one) if text.startswith("--"))


def _literal(kind: ast.expr) -> tuple[str, ...]:
    """The values of Literal[...], also inside Optional[...]; empty for other types."""
    if not isinstance(kind, ast.Subscript):
        return ()
    if _name(kind.value) == "Optional":
        return _literal(kind.slice)
    return _strings(kind.slice) if _name(kind.value) == "Literal" else ()


def _name(node: ast.expr | None) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _strings(node: ast.expr | None) -> tuple[str, ...]:
    """The text of a constant, or the texts of a list of constants."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return (node.value,)
    if isinstance(node, ast.List | ast.Tuple):
        return tuple(text for one in node.elts for text in _strings(one))
    return ()
