"""docs/profiles.md, made from the profile's own types: every key, and examples that tests read."""

from collections.abc import Iterator
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from toolkit.core.config import Section
from workloads.distributions import Numbers
from workloads.profile import ClassMix, Profile, SloLimits, built_in_profiles
from workloads.traces.catalog import REQUEST_TRACES

MIX_KEY = "classes.CLASS"  # one row for four alike
LIMITS_KEY = "slo.SLO_CLASS"
WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "whole number",
    float: "number",
    str: "text",
    Numbers: "[numbers](#numbers)",
    Any: "anything",
}
BOUNDS = (("ge", ">="), ("gt", ">"), ("le", "<="), ("lt", "<"))

EXAMPLES: dict[str, str] = {
    "Replay a trace": f"""\
name = "code-at-twice-the-speed"
duration_s = 60.0              # of the replay; the trace may be longer
arrival = "trace"

[trace]                        # trace = "azure-2023-code" alone is enough too
file = "azure-2023-code"       # or {", ".join(name for name in REQUEST_TRACES if name != "azure-2023-code")},
                               # or a file of yours: Azure's .csv, Mooncake's .jsonl, also with .gz
speed = 2.0

[classes.text_only]            # every class the trace has; it tells their shares, so no weight
slo_class = "batch"
""",
    "Conversations": """\
name = "conversations"
duration_s = 120.0
rate = 2.0                     # turns per second, of all conversations together
arrival = "poisson"

[sessions]
share = 0.8                    # the rest stay single requests
turns = { min = 2, max = 6 }
gap_s = 10.0                   # at least, between two turns

[classes.text_only]
weight = 1.0
slo_class = "realtime"
text_tokens = { median = 60.0, sigma = 0.6, min = 8, max = 400 }
""",
    "Images by URL": """\
name = "by-url"
rate = 1.0
origin = "url"                 # the gateway must be let: --set 'access.allowed_hosts=["127.0.0.1:8790"]'

[image_server]                 # started by the run, on loopback
port = 8790
slow_share = 0.1               # one in ten arrives over slow_s seconds
slow_s = 2.0

[classes.image_short]
weight = 1.0
images = { min = 1, max = 1 }
sizes = [[640, 480], [1280, 720]]
""",
    "A closed loop": """\
name = "eight-at-a-time"
duration_s = 60.0              # ends here, or with its requests
arrival = "closed"             # no arrival times: such a load slows down with the server

[closed]
concurrency = 8
requests = 400

[classes.text_only]
weight = 3.0                   # three in four

[classes.image_short]
weight = 1.0
images = { min = 1, max = 1 }
sizes = [[800, 600]]
""",
}


def profiles_page() -> str:
    """The page's text."""
    lines = [
        "# Workload profiles",
        "",
        "Made from `workloads/profile.py`. A profile is a TOML file: `toolkit bench --profile mine.toml` sends it,",
        f"`toolkit workload show mine.toml` prints what it asks. Built in: {', '.join(f'`{n}`' for n in built_in_profiles())}.",
        "",
    ]
    for title, text in EXAMPLES.items():
        lines += [f"## {title}", "", "```toml", *text.rstrip().splitlines(), "```", ""]
    lines += [
        "## Keys",
        "",
        '`classes_from = "mixed"`, at the top, takes `[classes]` and `[clients]` from another profile. A default of `-` is none:',
        "the key or the table may be left out, unless it is needed.",
        "",
    ]
    for path, model in sections():
        intro = " ".join((model.__doc__ or "").split())
        title = f"`[[{path}]]`" if path == "phases" else f"`[{path}]`" if path else "At the top"
        lines += [f"### {title}", "", intro, ""]
        if path == MIX_KEY:
            told = (f"- `{name}`: {description_of(field)}" for name, field in classes().items())
            lines += ["CLASS is what is asked, by one rule for workloads and gateway:", "", *told, ""]
        if path == LIMITS_KEY:
            lines += ["SLO_CLASS is `realtime`, `standard` or `batch`:", "", *_promises(), ""]
        lines += ["| key | type | default | meaning |", "|---|---|---|---|"]
        lines += [_row(name, field) for name, field in model.model_fields.items() if not _table(field)]
        lines.append("")
    lines += [
        "### Numbers",
        "",
        " ".join((Numbers.__doc__ or "").split()),
        "",
        "| key | type | default | meaning |",
        "|---|---|---|---|",
        *(_row(name, field) for name, field in Numbers.model_fields.items()),
        "",
    ]
    return "\n".join(lines)


def sections() -> Iterator[tuple[str, type[Section]]]:
    """Every table with keys of its own, by its path; the four classes and the three SLO classes once."""
    yield "", Profile
    for name, field in Profile.model_fields.items():
        below = _table(field)
        if name == "classes":
            yield MIX_KEY, ClassMix
        elif name == "slo":
            yield LIMITS_KEY, SloLimits
        elif below is not None:
            yield name, below


def classes() -> dict[str, FieldInfo]:
    """The workload classes that a profile can name."""
    below = _table(Profile.model_fields["classes"])
    assert below is not None
    return dict(below.model_fields)


def description_of(field: FieldInfo) -> str:
    """As in the type. Raises ValueError where a key has none."""
    if not field.description:
        raise ValueError(f"a key has no description: {field}")
    return field.description


def _promises() -> Iterator[str]:
    slo = Profile.model_fields["slo"].default
    for name in type(slo).model_fields:
        limits = getattr(slo, name)
        yield f"- `{name}`: ttft_s {limits.ttft_s:g}, itl_p95_s {limits.itl_p95_s:g}"


def _row(name: str, field: FieldInfo) -> str:
    kind = _words(field.annotation) + _bounds(field)
    return f"| `{name}` | {kind} | {_default(field)} | {description_of(field)} |"


def _table(field: FieldInfo) -> type[Section] | None:
    """The table behind a key, or behind a list of tables; none for Numbers, which are values."""
    inner = (field.annotation, *get_args(field.annotation))
    found = (t for t in inner if isinstance(t, type) and issubclass(t, Section) and t is not Numbers)
    return next(found, None)


def _words(annotation: Any) -> str:
    origin, inner = get_origin(annotation), get_args(annotation)
    if annotation in WORDS:
        return WORDS[annotation]
    if origin is Literal:
        return ", ".join(f'`"{value}"`' for value in inner)
    if origin in (Union, UnionType):
        return _words(next(part for part in inner if part is not type(None)))
    if origin is tuple and inner[-1] is Ellipsis:
        return f"list of {_words(inner[0])}{'s' if inner[0] in WORDS else ''}"
    if origin is tuple:
        return f"[{', '.join(_words(part) for part in inner)}]"
    if origin is dict:
        return "table"
    return ", ".join(f'`"{member.value}"`' for member in annotation)  # an enum


def _bounds(field: FieldInfo) -> str:
    told = [
        f"{sign} {getattr(limit, name):,}"
        for limit in field.metadata
        for name, sign in BOUNDS
        if hasattr(limit, name)
    ]
    return ", " + ", ".join(told) if told else ""


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "needed"
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is None or value is PydanticUndefined or value in ("", (), {}):
        return "-"
    if isinstance(value, Numbers):
        return f"`{{ {', '.join(f'{k} = {v}' for k, v in value.model_dump(exclude_none=True).items())} }}`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return f"`{[list(item) if isinstance(item, tuple) else item for item in value]}`"
    return f'`"{value}"`' if isinstance(value, str) else f"`{value}`"
