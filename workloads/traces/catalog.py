"""Which trace is meant: one of ours by name, or a file; and which reader it takes."""

from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from toolkit.core.errors import UsageFault
from workloads.traces.azure import read_azure
from workloads.traces.mooncake import read_mooncake
from workloads.traces.record import TraceRecord

TraceFormat = Literal["azure", "mooncake"]

READERS: Mapping[str, Callable[[Path], Iterator[TraceRecord]]] = MappingProxyType(
    {"azure": read_azure, "mooncake": read_mooncake}
)
BUILT_IN: Mapping[str, str] = MappingProxyType(
    {
        "azure-2023-conversation": "azure_llm_2023_conv.csv",
        "azure-2023-code": "azure_llm_2023_code.csv",
        "azure-2025-multimodal": "azure_lmm_2025_sample.csv",
        "mooncake-conversation": "mooncake_conversation.jsonl",
        "servegen-mm-image": "servegen_mm_image",
    }
)
"""Samples that come with the toolkit (workloads/data/LICENSES.txt says what they are cut from)."""

REQUEST_TRACES = tuple(name for name, file in BUILT_IN.items() if "." in file)
"""Those of requests with times; a folder is one of clients."""


def trace_path(name: str) -> Path:
    """The file of a built-in name, or the path itself. Raises UsageFault for a name that is neither."""
    if name in BUILT_IN:
        return Path(str(resources.files("workloads") / "data" / BUILT_IN[name]))
    path = Path(name)
    if not path.exists():
        raise UsageFault(f"trace {name!r}: no file, and not built in ({', '.join(BUILT_IN)}).")
    return path


def read_trace(name: str, kind: TraceFormat | None = None) -> Iterator[TraceRecord]:
    """The trace's records. The format is told by the ending (.csv or .jsonl, also with .gz) where it is not given.

    Raises UsageFault when neither tells, and TraceFault while it is read.
    """
    path = trace_path(name)
    ending = path.name.removesuffix(".gz").rpartition(".")[2]
    chosen = kind or {"csv": "azure", "jsonl": "mooncake"}.get(ending)
    if chosen is None:
        raise UsageFault(f"trace {name!r}: the name tells no format; set one of {', '.join(READERS)}.")
    return READERS[chosen](path)
