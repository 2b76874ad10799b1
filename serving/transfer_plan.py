"""What a transfer benchmark is asked to do, as values: sizes, batches, protocol, and what fits the memory.

Memory: each of the two processes holds one buffer of `buffer_bytes` and about 60 MB beside it.
"""

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from serving.engines.transfer.agent import DEFAULT_BUFFER
from toolkit.core.errors import EnvironmentFault, UsageFault

Protocol = Literal["tcp", "rdma"]
MIN_SIZE = 64  # a block carries its number at both ends
MAX_SIZE = 1 << 30
MIN_BUFFER, MAX_BUFFER = 1 << 20, 64 << 30
MAX_BATCH, MAX_STREAMS = 1024, 64
MAX_SECONDS = 600.0
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination that is measured: `batch` blocks of `size_bytes` in one call."""

    size_bytes: int
    batch: int

    @property
    def transfer_bytes(self) -> int:
        return self.size_bytes * self.batch


@dataclass(frozen=True, slots=True)
class Plan:
    """A benchmark. too_large: asked for, but not run since it would not fit the buffer."""

    cells: tuple[Cell, ...]
    too_large: tuple[Cell, ...]
    protocol: Protocol
    why: str
    device: str = ""
    seconds: float = 2.0
    streams: int = 1
    buffer_bytes: int = DEFAULT_BUFFER
    stall_s: float = 10.0


def plan(
    sizes: str,
    batches: str,
    protocol: str,
    ib_devices: Sequence[str],
    *,
    device: str = "",
    seconds: float = 2.0,
    streams: int = 1,
    stall_s: float = 10.0,
    buffer_bytes: int = DEFAULT_BUFFER,
) -> Plan:
    """Raises UsageFault for what cannot be measured, EnvironmentFault for what cannot be measured here."""
    if not 0.1 <= seconds <= MAX_SECONDS:
        raise UsageFault(f"--seconds-per-size {seconds:g}: from 0.1 to {MAX_SECONDS:g}.")
    if not 1 <= streams <= MAX_STREAMS:
        raise UsageFault(f"--streams {streams}: from 1 to {MAX_STREAMS}.")
    chosen, why = choose_protocol(protocol, ib_devices, device)
    pairs = itertools.product(parse_batches(batches), parse_sizes(sizes))
    asked = [Cell(size, batch) for batch, size in pairs]
    room = buffer_bytes // streams
    fit = tuple(cell for cell in asked if cell.transfer_bytes <= room)
    if not fit:
        raise UsageFault(
            f"No size fits: {streams} streams share a buffer of {size_name(buffer_bytes)}. Ask for smaller --sizes."
        )
    left = tuple(cell for cell in asked if cell.transfer_bytes > room)
    return Plan(fit, left, chosen, why, device, seconds, streams, buffer_bytes, stall_s)


def choose_protocol(asked: str, ib_devices: Sequence[str], device: str = "") -> tuple[Protocol, str]:
    """The protocol and the reason in words. Raises UsageFault, EnvironmentFault where there is no device."""
    found = ", ".join(ib_devices)
    if asked == "tcp":
        if device:
            raise UsageFault("--device names an RDMA device: use it with --protocol rdma.")
        return "tcp", "asked for"
    if asked == "rdma" or (asked == "auto" and (ib_devices or device)):
        if not ib_devices:
            raise EnvironmentFault("--protocol rdma: /sys/class/infiniband shows no device here. Use tcp.")
        if unknown := sorted({name.strip() for name in device.split(",") if name.strip()} - set(ib_devices)):
            raise UsageFault(f"--device {', '.join(unknown)}: not here. There are: {found}.")
        return "rdma", "asked for" if asked == "rdma" else f"/sys/class/infiniband has {found}"
    if asked == "auto":
        return "tcp", "/sys/class/infiniband shows no device"
    raise UsageFault(f"--protocol {asked!r}: tcp, rdma or auto.")


def parse_sizes(text: str) -> tuple[int, ...]:
    """`4K,1M` as bytes, each once, in their order. Raises UsageFault."""
    return _each(text, "--sizes", _size)


def parse_batches(text: str) -> tuple[int, ...]:
    """Raises UsageFault."""
    return _each(text, "--batch", _batch)


def parse_buffer(text: str) -> int:
    """`256M` as bytes. Raises UsageFault."""
    size = _bytes(text)
    if size is None or not MIN_BUFFER <= size <= MAX_BUFFER:
        raise UsageFault(f"--buffer {text!r}: from {size_name(MIN_BUFFER)} to {size_name(MAX_BUFFER)}.")
    return size


def parse_address(text: str, option: str) -> tuple[str, int]:
    """HOST:PORT, an IPv6 address in brackets. Raises UsageFault."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise UsageFault(f"{option} {text!r}: write HOST:PORT, as 10.0.0.1:18515.")
    return host, int(port)


def size_name(size_bytes: int) -> str:
    """4096 -> 4K; 5000 -> 5000."""
    for unit in ("G", "M", "K"):
        if size_bytes % _UNITS[unit] == 0:
            return f"{size_bytes // _UNITS[unit]}{unit}"
    return str(size_bytes)


def environment(protocol: Protocol, stall_s: float) -> Mapping[str, str]:
    """What both ends get over the caller's own MC_* variables: as the engines (commands.py), and Mooncake's own bound.

    Without MC_FORCE_TCP Mooncake looks for RDMA devices first, whatever `initialize` was told.
    """
    forced = {"MC_FORCE_TCP": "1"} if protocol == "tcp" else {}
    return {"MOONCAKE_PROTOCOL": protocol, "MC_TRANSFER_TIMEOUT": str(max(1, round(stall_s))), **forced}


def _each(text: str, option: str, parse: Callable[[str], int]) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise UsageFault(f"{option}: name at least one.")
    return tuple(dict.fromkeys(parse(word) for word in words))


def _bytes(word: str) -> int | None:
    match = re.fullmatch(r"(\d+)([KMG]?)(IB|B)?", word.strip().upper())
    return None if match is None else int(match[1]) * _UNITS[match[2]]


def _size(word: str) -> int:
    size = _bytes(word)
    if size is None:
        raise UsageFault(f"--sizes {word!r}: a number of bytes, or with K, M or G (powers of 1024).")
    if not MIN_SIZE <= size <= MAX_SIZE:
        raise UsageFault(f"--sizes {word!r}: from {MIN_SIZE} bytes to {size_name(MAX_SIZE)}.")
    return size


def _batch(word: str) -> int:
    if not word.isdecimal() or not 1 <= int(word) <= MAX_BATCH:
        raise UsageFault(f"--batch {word!r}: a whole number from 1 to {MAX_BATCH}.")
    return int(word)
