"""Frozen settings that come as JSON, checked by hand: pydantic would be a third of a stand-in's start."""

from dataclasses import MISSING, asdict, field, fields
from typing import Any, Self

_NUMBERS = (int, float)


def switch(default: Any, text: str, *, least: float | None = None, most: float | None = None, over: float | None = None, choices: tuple[str, ...] = ()) -> Any:  # fmt: skip
    """A field. Its value has the default's type; least and most are allowed, `over` is not; choices: the allowed words."""
    bounds = {"text": text, "least": least, "most": most, "over": over, "choices": choices}
    return field(default=default, metadata=bounds)


class Switches:
    """Base of frozen dataclasses whose fields are all `switch`es."""

    @classmethod
    def of(cls, given: object, before: Self | None = None) -> Self:
        """`before`, or the defaults, with what is given laid over it. Raises ValueError that names the field."""
        if not isinstance(given, dict):
            raise ValueError("expected an object")
        known = {one.name: one for one in fields(cls)}  # type: ignore[arg-type]
        values = {} if before is None else {name: getattr(before, name) for name in known}
        for name, value in given.items():
            if name not in known:
                raise ValueError(f"unknown field {name!r}; known are {', '.join(sorted(known))}")
            values[name] = _checked(name, value, known[name].default, known[name].metadata)
        return cls(**values)

    def told(self) -> dict[str, Any]:
        """As it goes into JSON."""
        return asdict(self)  # type: ignore[call-overload,no-any-return]


def _checked(name: str, value: Any, default: Any, bounds: Any) -> Any:
    assert default is not MISSING
    if isinstance(default, Switches):
        return default.of(value)
    number = isinstance(value, _NUMBERS) and not isinstance(value, bool)
    if isinstance(default, bool):
        right = isinstance(value, bool)
    elif isinstance(default, float):
        right = number
    elif isinstance(default, int):
        right = number and value == int(value)
    else:
        right = isinstance(value, str) and (not bounds["choices"] or value in bounds["choices"])
    if number and right:
        right = (
            (bounds["least"] is None or value >= bounds["least"])
            and (bounds["most"] is None or value <= bounds["most"])
            and (bounds["over"] is None or value > bounds["over"])
        )
    if not right:
        raise ValueError(f"{name} cannot be {value!r}: {bounds['text']}")
    return type(default)(value)
