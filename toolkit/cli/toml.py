"""A configuration as TOML, with each key's description above it."""

import json
from collections.abc import Iterator
from enum import Enum
from pathlib import PurePath
from typing import Any

from pydantic import BaseModel


def to_toml(model: BaseModel) -> str:
    """TOML that reads back to the same model, but for passwords in URLs. A key without a value (None) is shown as a comment."""
    return "\n".join(_table(model, ())).strip() + "\n"


def _table(model: BaseModel, path: tuple[str, ...]) -> Iterator[str]:
    below: list[tuple[str, BaseModel, str]] = []
    shown = model.model_dump()  # with what may not be shown masked
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        description = field.description or ""
        if isinstance(value, BaseModel):
            below.append((name, value, description or (type(value).__doc__ or "").partition("\n")[0]))
        else:
            if description:
                yield f"# {description}"
            yield f"{name} = {_value(shown[name])}" if value is not None else f'# {name} = ""'
    for name, table, description in below:
        yield ""
        if description:
            yield f"# {description}"
        yield f"[{'.'.join((*path, name))}]"
        yield from _table(table, (*path, name))


def _value(value: Any) -> str:
    if isinstance(value, Enum):
        return _value(value.value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str | PurePath):
        return json.dumps(str(value), ensure_ascii=False)  # a JSON string is a TOML basic string
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {_value(item)}' for key, item in value.items())} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(item) for item in value)}]"
    raise TypeError(f"no TOML form for {type(value).__name__}")
