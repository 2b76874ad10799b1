"""A workload profile: a TOML file that says how much of what is asked, how fast, for how long."""

import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from toolkit.core.config import Section, merge, read_toml, validate
from toolkit.core.errors import UsageFault
from toolkit.core.sample import SloClass, WorkloadClass
from toolkit.core.slo import DEFAULT_SLOS, Slo

SUFFIX = ".toml"


class Span(Section):
    """A whole number drawn uniformly from min to max, both included."""

    min: int = Field(ge=0)
    max: int = Field(ge=0)

    @model_validator(mode="after")
    def _ordered(self) -> "Span":
        if self.max < self.min:
            raise ValueError(f"max {self.max} is under min {self.min}")
        return self


class ClassMix(Section):
    """One workload class in the mix."""

    weight: float = Field(ge=0, description="Share of the requests, relative to the other classes' weights.")
    slo_class: SloClass = Field(
        SloClass.STANDARD, description="What these requests are promised; sent as x-slo-class."
    )
    text_tokens: Span = Field(
        Span(min=16, max=160), description="Prompt length in estimated tokens (4 characters each)."
    )
    max_tokens: Span = Field(Span(min=8, max=32), description="max_tokens of a request.")
    images: Span = Field(Span(min=0, max=0), description="Images per request.")
    sizes: tuple[tuple[int, int], ...] = Field(
        (), description="[width, height] of an image, each equally likely."
    )
    photo_share: float = Field(
        0.5,
        ge=0,
        le=1,
        description="Share of images cut from real photographs; the rest are synthetic scenes.",
    )

    @model_validator(mode="after")
    def _images_have_sizes(self) -> "ClassMix":
        if self.images.max and not self.sizes:
            raise ValueError("a class with images needs sizes, as [[640, 480]]")
        if any(side < 1 for size in self.sizes for side in size):
            raise ValueError("a side of an image is at least 1 pixel")
        return self


class Classes(Section):
    """The mix. A class that is left out is not asked."""

    text_only: ClassMix | None = None
    image_short: ClassMix | None = None
    multi_image_long: ClassMix | None = None
    high_res: ClassMix | None = None

    @model_validator(mode="after")
    def _something(self) -> "Classes":
        if not any(mix.weight for mix in self.present().values()):
            raise ValueError("at least one class needs a weight above 0")
        return self

    def present(self) -> dict[WorkloadClass, ClassMix]:
        """The classes that are asked, always in the same order."""
        found = {WorkloadClass(name): getattr(self, name) for name in type(self).model_fields}
        return {name: mix for name, mix in found.items() if mix is not None}


class SloLimits(Section):
    """What a kept promise is, as the report counts it; 0: no limit."""

    ttft_s: float = Field(ge=0, description="TTFT from the intended arrival, seconds.")
    itl_p95_s: float = Field(ge=0, description="P95 of the request's own gaps between tokens, seconds.")

    def slo(self) -> Slo:
        return Slo(ttft_s=self.ttft_s or None, itl_p95_s=self.itl_p95_s or None)


def _limits(slo_class: SloClass) -> SloLimits:
    slo = DEFAULT_SLOS[slo_class]
    return SloLimits(ttft_s=slo.ttft_s or 0.0, itl_p95_s=slo.itl_p95_s or 0.0)


class Promises(Section):
    """The limits of each SLO class."""

    realtime: SloLimits = Field(_limits(SloClass.REALTIME), description="Conversations.")
    standard: SloLimits = Field(_limits(SloClass.STANDARD), description="Image and text.")
    batch: SloLimits = Field(_limits(SloClass.BATCH), description="Offline work.")

    def slos(self) -> dict[SloClass, Slo]:
        return {name: getattr(self, name.value).slo() for name in SloClass}


class Profile(Section):
    """A whole workload before any draw is made."""

    name: str = Field(min_length=1, description="Shown in the report.")
    duration_s: float = Field(60.0, gt=0, description="Length of the offered window, seconds.")
    rate: float = Field(1.5, gt=0, description="Requests per second, on average.")
    arrival: Literal["constant", "poisson"] = Field("poisson", description="Spacing of the arrivals.")
    seed: int = Field(1, ge=0, description="The same seed gives the same plan.")
    stream: bool = Field(
        True, description="Ask for streamed answers. Without streaming the first token is the whole answer."
    )
    request_timeout_s: float = Field(120.0, gt=0, description="Longest life of one request.")
    drain_s: float = Field(60.0, ge=0, description="Longest wait for open answers after the last arrival.")
    max_body_bytes: int = Field(
        1_500_000_000, gt=0, description="Most memory that the prepared request bodies may take."
    )
    extra_body: dict[str, Any] = Field(
        default_factory=dict, description="Further fields of every request body, as temperature."
    )
    classes: Classes
    slo: Promises = Promises()


def load_profile(name: str, overrides: Mapping[str, Any] | None = None) -> Profile:
    """A built-in profile by name, or any by file (a path with a separator or ending in .toml).

    Raises UsageFault for an unknown name, an unreadable file or a mistake in it.
    """
    if name.endswith(SUFFIX) or "/" in name:
        tables, source = read_toml(Path(name)), name
    else:
        built_in = resources.files("workloads") / "profiles" / f"{name}{SUFFIX}"
        if not built_in.is_file():
            raise UsageFault(
                f"profile {name!r}: not built in ({', '.join(built_in_profiles())}), and not a .toml file."
            )
        with resources.as_file(built_in) as path:
            tables, source = read_toml(path), f"profile {name}"
    return validate(Profile, merge(tables, overrides or {}), source)


def built_in_profiles() -> list[str]:
    """Names for `load_profile`."""
    folder = resources.files("workloads") / "profiles"
    return sorted(
        entry.name.removesuffix(SUFFIX) for entry in folder.iterdir() if entry.name.endswith(SUFFIX)
    )


def to_toml(profile: Profile) -> str:
    """The effective profile, readable by `load_profile`."""
    tables = json.loads(profile.model_dump_json(exclude_none=True))
    lines: list[str] = []
    _write_table(tables, (), lines)
    return "\n".join(lines).lstrip("\n") + "\n"


def _write_table(table: Mapping[str, Any], path: tuple[str, ...], lines: list[str]) -> None:
    # json's strings, numbers, booleans and lists are TOML's too; only tables are written differently.
    for key, value in table.items():
        if not isinstance(value, dict):
            lines.append(f"{_key(key)} = {json.dumps(value)}")
    for key, value in table.items():
        if isinstance(value, dict):
            lines.extend(("", f"[{'.'.join(_key(part) for part in (*path, key))}]"))
            _write_table(value, (*path, key), lines)


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else json.dumps(name)
