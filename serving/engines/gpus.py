"""GPU ids as people write them, and their split into instances."""

from collections.abc import Sequence
from dataclasses import dataclass

from toolkit.core.errors import UsageFault


@dataclass(frozen=True, slots=True)
class GpuGroup:
    """The GPUs of one instance: first, first + step, ..."""

    first: int
    step: int
    ids: tuple[int, ...]


def parse_gpus(text: str, place: str) -> tuple[int, ...]:
    """`0-3` or `0,2,5-6` as ids, in the order written. `place` names the option in the UsageFault."""
    ids: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise UsageFault(f"{place} = {text!r}: write GPU ids as 0-3 or 0,2.")
        if dash and int(last) < int(first):
            raise UsageFault(f"{place} = {text!r}: {part.strip()} runs backwards; write {last}-{first}.")
        ids += range(int(first), int(last if dash else first) + 1)
    if twice := sorted({gpu for gpu in ids if ids.count(gpu) > 1}):
        raise UsageFault(f"{place} = {text!r}: GPU {twice[0]} is named twice.")
    return tuple(ids)


def split(ids: Sequence[int], tp: int, place: str) -> tuple[GpuGroup, ...]:
    """One group per instance of `tp` GPUs.

    Raises UsageFault when the ids cannot be shared out, or when an instance's ids are not evenly spaced: SGLang
    takes a first id and a step.
    """
    if len(ids) % tp:
        raise UsageFault(f"{place} names {len(ids)} GPUs, which tp = {tp} does not divide.")
    groups = []
    for start in range(0, len(ids), tp):
        mine = tuple(ids[start : start + tp])
        step = mine[1] - mine[0] if tp > 1 else 1
        if step < 1 or mine != tuple(range(mine[0], mine[0] + step * tp, step)):
            raise UsageFault(
                f"{place}: GPUs {', '.join(map(str, mine))} of one instance are not evenly spaced."
            )
        groups.append(GpuGroup(mine[0], step, mine))
    return tuple(groups)


def share(prefill: str, decode: str, tp: int) -> tuple[tuple[GpuGroup, ...], tuple[GpuGroup, ...]]:
    """Prefill and decode groups. Raises UsageFault for ids that both roles name."""
    prefill_ids = parse_gpus(prefill, "engine.prefill.gpus")
    decode_ids = parse_gpus(decode, "engine.decode.gpus")
    if both := sorted(set(prefill_ids) & set(decode_ids)):
        raise UsageFault(
            f"GPU {', '.join(map(str, both))} is given to prefill and to decode: each engine needs its own."
        )
    return split(prefill_ids, tp, "engine.prefill.gpus"), split(decode_ids, tp, "engine.decode.gpus")
