"""One request out of the journal, as a picture of its hops."""

from pathlib import Path

from serving.telemetry import stages
from toolkit.core import journal
from toolkit.core.errors import UsageFault
from toolkit.core.sample import LostAttempt, Sample

JOURNAL = "requests"
BAR_CHARS = 40

MEANING = {
    "body": "reading the body",
    "fetch": "fetching images",
    "prepare": "decoding, scaling, encoding images",
    "wait": "waiting for an engine slot",
    "dispatch": "failed attempts, choosing a pair, posting both legs",
    "prefill": "prefill and KV transfer",
    "first_token": "decode to the first token",
    "decode": "first token to the end",
}


def find(folder: Path, request_id: str) -> Sample:
    """The newest record whose id begins with `request_id` (`last`: the newest of all).

    Raises UsageFault when there is none, or when the beginning fits several.
    """
    files = journal.files(folder, JOURNAL)
    if not files:
        raise UsageFault(
            f"{folder.absolute()}: no journal here. Run folders are made in ./runs of the folder that `toolkit serve` was started in; "
            "name one with --run."
        )
    found: dict[str, dict[str, object]] = {}
    for path in files:
        for record in journal.read(path):
            identity = str(record.get("request_id", ""))
            if request_id == "last" or identity.startswith(request_id):
                found[identity] = record
        if found and (request_id == "last" or request_id in found):
            break
    if not found:
        raise UsageFault(
            f"No request {request_id!r} in {folder}. The id is the x-request-id header of an answer."
        )
    if request_id in found:
        return Sample.from_dict(found[request_id])
    if request_id != "last" and len(found) > 1:
        raise UsageFault(
            f"{request_id!r} is the beginning of {len(found)} ids, among them {', '.join(sorted(found)[:3])}."
        )
    return Sample.from_dict(list(found.values())[-1])


def render(sample: Sample) -> str:
    """A few lines of text: what it was, how it ended, a bar per hop."""
    kind = f"{sample.workload_class.value} / {sample.slo_class.value}"
    shape = "stream" if sample.stream else "whole answer"
    lines = [
        f"{sample.request_id}  {sample.outcome.value} ({sample.status})  {kind}",
        f"model {sample.model}, tenant {sample.tenant}, {shape}, pair {sample.prefill or '-'} + {sample.decode or '-'}"
        + (f", attempts {sample.attempts}" if sample.attempts > sample.choices else ""),
    ]
    if sample.error_code is not None:
        lines.append(f"error {sample.error_code} in hop {sample.error_hop}: {sample.error_message}")
    ttft = sample.timeline.first_token
    lines.append(
        f"TTFT {_ms(ttft)} of {sample.ttft_budget * 1000:.0f} ms budget, total {_ms(sample.timeline.ended)}, "
        f"ITL mean {_ms(sample.itl.mean if sample.itl.count else None)} / p95 {_ms(sample.itl.p95 if sample.itl.count else None)}"
    )
    lines += [attempt(number, lost) for number, lost in enumerate(sample.lost_attempts, 1)]
    how = "counted" if sample.tokens_counted else "estimated"
    lines.append(
        f"tokens: prompt {_count(sample.prompt_tokens)} ({how} {sample.text_tokens_estimated} text + "
        f"{sample.image_tokens_estimated} image), completion {_count(sample.completion_tokens)} of {sample.max_tokens}"
    )
    lines += [
        f"image: {image.width}x{image.height} {image.format} {image.size_bytes} B ({image.origin}) -> "
        f"{image.prepared_width}x{image.prepared_height}, {image.tokens} tokens"
        for image in sample.images
    ]
    spent = stages(sample)
    total = max(sum(spent.values()), 1e-9)
    begun = 0.0
    for name, seconds in spent.items():
        start, width = (
            round(begun / total * BAR_CHARS),
            max(1 if seconds > 0 else 0, round(seconds / total * BAR_CHARS)),
        )
        bar = (" " * start + "#" * width)[:BAR_CHARS].ljust(BAR_CHARS)
        cut = "   <- ended here" if sample.error_code is not None and name == list(spent)[-1] else ""
        lines.append(f"  {name:<12}|{bar}| {_ms(seconds):>10}  {MEANING[name]}{cut}")
        begun += seconds
    return "\n".join(lines)


def attempt(number: int, lost: LostAttempt) -> str:
    """One failed attempt and what came next."""
    spent = None if lost.dispatched is None else lost.ended - lost.dispatched
    then = "tried again" if lost.then == "retried" else f"not tried again ({lost.then})"
    choice = f" of choice {lost.choice}" if lost.choice else ""
    return (
        f"failed attempt {number}{choice}: {lost.prefill} + {lost.decode} at {_ms(lost.dispatched)}, {lost.cause} after"
        f" {_ms(spent)}, {then}: {lost.message}"
    )


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.1f} ms"


def _count(tokens: int | None) -> str:
    return "-" if tokens is None else str(tokens)
