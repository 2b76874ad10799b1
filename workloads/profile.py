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
from workloads.distributions import Numbers
from workloads.returning import Returning
from workloads.shape import Closed, ImageServer, Pattern, Phase, Sessions, Stretch, Trace, phases_s, stretches
from workloads.shelf import MAX_BODY_BYTES
from workloads.tables import toml_of

SUFFIX = ".toml"
PROFILE_FILE, PLAN_FILE = "profile.toml", "plan.json"  # of a run's folder
FIXED_BY_PLAN = frozenset({"rate", "duration_s", "seed"})
MIX = ("classes", "clients")  # what `classes_from` takes from another profile


class ClassMix(Section):
    """One workload class in the mix."""

    weight: float = Field(
        1.0,
        ge=0,
        description="Share of the requests, relative to the other classes' weights. Needed unless a trace tells the classes.",
    )
    slo_class: SloClass = Field(
        SloClass.STANDARD, description="What these requests are promised; sent as x-slo-class."
    )
    lengths: Literal["own", "clients"] = Field(
        "own",
        description="Where lengths and counts come from: own, the tables below; clients, the profile's [clients].",
    )
    text_tokens: Numbers = Field(
        Numbers(min=16, max=160), description="Prompt length in estimated tokens (4 characters each)."
    )
    max_tokens: Numbers = Field(Numbers(min=8, max=32), description="max_tokens of a request.")
    images: Numbers = Field(Numbers(min=0, max=0), description="Images per request.")
    sizes: tuple[tuple[int, int], ...] = Field(
        (), description="[width, height] of an image, each equally likely."
    )
    photo_share: float = Field(
        0.5,
        ge=0,
        le=1,
        description="Share of images cut from real photographs; the rest are synthetic scenes.",
    )
    page_share: float = Field(
        0.0, ge=0, le=1, description="Share of images that are text-like pages, as scans and screenshots are."
    )
    folder: str = Field(
        "",
        description="A folder of JPEG, PNG or WebP files to send as they are, instead of images made here.",
    )
    repeat_share: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Share of images taken from a small pool, so that the same bytes come again.",
    )
    repeat_pool: int = Field(16, ge=1, description="Different images in that pool.")

    @model_validator(mode="after")
    def _images_have_sizes(self) -> "ClassMix":
        if self.lengths == "own" and self.images.largest and not (self.sizes or self.folder):
            raise ValueError("a class with images needs sizes, as [[640, 480]]")
        if any(side < 1 for size in self.sizes for side in size):
            raise ValueError("a side of an image is at least 1 pixel")
        if self.photo_share + self.page_share > 1:
            raise ValueError("photo_share and page_share pass 1 together")
        return self


class Classes(Section):
    """The mix. A class that is left out is not asked."""

    text_only: ClassMix | None = Field(None, description="No image.")
    image_short: ClassMix | None = Field(
        None, description="One image under 4 megapixels, and a text under 2,048 tokens."
    )
    multi_image_long: ClassMix | None = Field(
        None, description="Images under 4 megapixels: two or more, or one with a longer text."
    )
    high_res: ClassMix | None = Field(
        None, description="One image or more, the largest of at least 4 megapixels."
    )

    @model_validator(mode="after")
    def _something(self) -> "Classes":
        if not any(mix.weight for mix in self.present().values()):
            raise ValueError("at least one class needs a weight above 0")
        return self

    def present(self) -> dict[WorkloadClass, ClassMix]:
        """The classes that are asked, always in the same order."""
        found = {WorkloadClass(name): getattr(self, name) for name in type(self).model_fields}
        return {name: mix for name, mix in found.items() if mix is not None}


class Clients(Section):
    """Clients of a real service, for the classes whose lengths come from them."""

    folder: str = Field("servegen-mm-image", description="A ServeGen folder, or the name of a built-in one.")
    window_s: float = Field(
        43_200.0, ge=0, description="Which part of the recorded day, by the second at which it begins."
    )
    max_images: int = Field(16, ge=1, description="Most images of a request; more are not drawn.")


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


Arrival = Literal["constant", "poisson", "gamma", "on_off", "mmpp", "trace", "closed"]


class Profile(Section):
    """A whole workload before any draw is made."""

    name: str = Field(min_length=1, description="Shown in the report.")
    duration_s: float = Field(
        60.0,
        gt=0,
        description="Length of the offered window, seconds. With phases: their sum; less cuts them.",
    )
    rate: float = Field(
        1.5,
        gt=0,
        description="Requests per second, on average; the peak, for phases that name a share of it. A trace has its own.",
    )
    arrival: Arrival = Field(
        "poisson",
        description="Spacing of the arrivals. trace: as recorded ([trace]). closed: no times, a new request when one "
        "ends ([closed]); such a load slows down with the server and hides its delays.",
    )
    pattern: Pattern = Pattern()
    trace: Trace | None = None
    closed: Closed | None = None
    phases: tuple[Phase, ...] = Field((), description="Stretches of different rates, one after another.")
    seed: int = Field(1, ge=0, description="The same seed gives the same plan.")
    stream: bool = Field(
        True, description="Ask for streamed answers. Without streaming the first token is the whole answer."
    )
    request_timeout_s: float = Field(120.0, gt=0, description="Longest life of one request.")
    drain_s: float = Field(60.0, ge=0, description="Longest wait for open answers after the last arrival.")
    max_body_bytes: int = Field(
        MAX_BODY_BYTES,
        gt=0,
        description="Most that the prepared request bodies may take; over 0.25 GB they lie in a temporary file.",
    )
    extra_body: dict[str, Any] = Field(
        default_factory=dict, description="Further fields of every request body, as temperature."
    )
    origin: Literal["inline", "url"] = Field(
        "inline",
        description="How images travel: inside the body, or as URLs of a server that the run starts on loopback.",
    )
    image_server: ImageServer = ImageServer()
    sessions: Sessions | None = None
    returning: Returning = Returning()
    plan: str = Field("", description="A recorded plan.json to repeat exactly; nothing is drawn then.")
    classes: Classes
    clients: Clients | None = None
    slo: Promises = Promises()

    @model_validator(mode="before")
    @classmethod
    def _duration_of_phases(cls, tables: Any) -> Any:
        if isinstance(tables, dict) and tables.get("phases") and "duration_s" not in tables:
            try:
                return {**tables, "duration_s": phases_s(tables["phases"])}
            except (TypeError, KeyError, ValueError, AttributeError):
                return tables  # the phases' own validation says what is wrong
        return tables

    @model_validator(mode="after")
    def _whole(self) -> "Profile":
        for kind, section in (("trace", self.trace), ("closed", self.closed)):
            if (self.arrival == kind) != (section is not None):
                raise ValueError(f'arrival = "{kind}" and the table [{kind}] go together')
            if self.arrival == kind and self.phases:
                raise ValueError(f'arrival = "{kind}" has no phases')
        if self.phases and self.duration_s > phases_s(self.phases) + 1e-6:
            raise ValueError(f"the phases last {phases_s(self.phases):g} s, less than duration_s")
        if self.arrival == "closed" and self.returning.tries:
            raise ValueError("clients come back (returning.tries) to an open loop only")
        if self.arrival == "closed" and self.sessions is not None:
            raise ValueError("sessions need arrival times")
        self._check_weights()
        lent = [name.value for name, mix in self.classes.present().items() if mix.lengths == "clients"]
        if lent and self.clients is None:
            raise ValueError(f"{', '.join(lent)}: lengths from clients need the table [clients]")
        return self

    def _check_weights(self) -> None:
        if self.trace is not None and self.trace.lengths:
            return  # the trace tells the classes
        unweighed = [
            n.value for n, mix in self.classes.present().items() if "weight" not in mix.model_fields_set
        ]
        if unweighed:
            raise ValueError(
                f"a weight is missing: {', '.join(f'classes.{name}.weight' for name in unweighed)}"
            )

    @property
    def has_rate(self) -> bool:
        """Whether `rate` steers its arrivals: they are neither recorded nor a closed loop."""
        return self.arrival not in ("closed", "trace") and not self.plan

    def stretches(self) -> tuple[Stretch, ...]:
        """The rate over the window, piece by piece; one piece without phases."""
        return stretches(self.phases, self.rate, self.duration_s)


def load_profile(name: str, overrides: Mapping[str, Any] | None = None) -> Profile:
    """A built-in profile by name, any by file (a path with a separator or ending in .toml), or the folder of a run.

    A run's folder gives the run again: its profile, and its plan instead of a new one. Raises UsageFault for an
    unknown name, an unreadable file or a mistake in it, and where `overrides` would change what a plan has fixed.
    """
    folder = Path(name)
    if name and folder.is_dir():
        tables, source = read_toml(folder / PROFILE_FILE), name
        tables["plan"] = str((folder / PLAN_FILE).resolve())
    else:
        tables, source = _tables(name, ())
    fixed = sorted(FIXED_BY_PLAN.intersection(overrides or {}))
    if tables.get("plan") and fixed:
        raise UsageFault(
            f"{source}: a recorded plan is repeated as it is: {', '.join(fixed)} cannot be changed."
        )
    return validate(Profile, merge(tables, overrides or {}), source)


def _tables(name: str, asked_by: tuple[str, ...]) -> tuple[dict[str, Any], str]:
    """The profile's tables, with the mix of another one written in where it says `classes_from`."""
    if name in asked_by:
        raise UsageFault(
            f"profile {name!r} takes its classes from itself ({' -> '.join((*asked_by, name))})."
        )
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
    lender = tables.pop("classes_from", None)
    if lender is not None:
        lent, _ = _tables(str(lender), (*asked_by, name))
        tables = merge({key: lent[key] for key in MIX if key in lent}, tables)
    return tables, source


def built_in_profiles() -> list[str]:
    """Names for `load_profile`."""
    folder = resources.files("workloads") / "profiles"
    return sorted(
        entry.name.removesuffix(SUFFIX) for entry in folder.iterdir() if entry.name.endswith(SUFFIX)
    )


def to_toml(profile: Profile) -> str:
    """The effective profile, readable by `load_profile`."""
    return toml_of(json.loads(profile.model_dump_json(exclude_none=True)))
