"""One request out of the journal, as a picture of its hops."""

from pathlib import Path

from toolkit.core import journal
from toolkit.core.errors import UsageFault
from toolkit.core.sample import Degraded, LostAttempt, Sample

JOURNAL = "requests"
BAR_CHARS = 40

FOUND = {
    "memory": ", found in this gateway's cache",
    "shared": ", found in the shared cache",
    "joined": ", prepared once with another request's",
}
"""ImageRecord.cache in words."""

MEANING = {
    "body": "reading the body",
    "parse": "parsing and checking the request",
    "fetch": "fetching images",
    "prepare": "decoding, scaling, encoding images",
    "wait": "waiting for an engine slot",
    "dispatch": "failed attempts, choosing a pair, posting both legs",
    "fallback": "the fallback endpoint, to its first token",
    "prefill": "prefill and KV transfer",
    "first_token": "decode to the first token",
    "decode": "first token to the end",
}

LAST = "last"
"""In place of an id: the request that ended last."""


def search(runs: Path, request_id: str) -> tuple[Path, Sample]:
    """The newest run folder below `runs` that knows the id, as `find` takes it, and the record. `last`: of the folder in which
    a request ended last, since several services may run.

    Raises UsageFault when none does, or when the beginning fits several in one.
    """
    latest = (runs / "latest").resolve()
    older = sorted((path for path in runs.glob("serve-*") if path.resolve() != latest), reverse=True)
    folders = [path for path in (latest, *older) if journal.files(path / "journal", JOURNAL)]
    if not folders:
        raise UsageFault(
            f"{runs.absolute()}: no journal here. Run folders are made in ./runs of the folder that `toolkit serve` was started in; "
            "name one with --run."
        )
    if request_id == LAST:
        folders.sort(
            key=lambda folder: journal.files(folder / "journal", JOURNAL)[0].stat().st_mtime, reverse=True
        )
    for folder in folders:
        if found := _matches(folder / "journal", request_id):
            return folder, _the_one(found, request_id)
    raise UsageFault(
        f"No request {request_id!r} in any run folder of {runs} ({len(folders)} with a journal). The id is the x-request-id"
        " header of an answer; a run folder elsewhere is named with --run."
    )


def find(run: Path, request_id: str) -> Sample:
    """The newest record of one run folder whose id begins with `request_id` (`last`: the newest of all).

    Raises UsageFault when there is none, or when the beginning fits several.
    """
    folder = run / "journal"
    if not journal.files(folder, JOURNAL):
        raise UsageFault(f"{folder.absolute()}: no journal here. Is {run} a run folder of `toolkit serve`?")
    found = _matches(folder, request_id)
    if not found:
        raise UsageFault(
            f"No request {request_id!r} in {folder}. The id is the x-request-id header of an answer; without --run all run"
            " folders are searched."
        )
    return _the_one(found, request_id)


def _matches(folder: Path, request_id: str) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = {}
    for path in journal.files(folder, JOURNAL):
        for record in journal.read(path):
            identity = str(record.get("request_id", ""))
            if request_id == LAST or identity.startswith(request_id):
                found[identity] = record
        if found and (request_id == LAST or request_id in found):
            break
    return found


def _the_one(found: dict[str, dict[str, object]], request_id: str) -> Sample:
    if request_id in found:
        return Sample.from_dict(found[request_id])
    if request_id != LAST and len(found) > 1:
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
    lines += [degradation(one) for one in sample.degraded]
    lines += [attempt(number, lost) for number, lost in enumerate(sample.lost_attempts, 1)]
    how = "counted" if sample.tokens_counted else "estimated"
    lines.append(
        f"tokens: prompt {_count(sample.prompt_tokens)} ({how} {sample.text_tokens_estimated} text + "
        f"{sample.image_tokens_estimated} image), completion {_count(sample.completion_tokens)} of {sample.max_tokens}"
    )
    lines += [
        f"image: {image.width}x{image.height} {image.format} {image.size_bytes} B ({image.origin}) -> "
        f"{image.prepared_width}x{image.prepared_height}, {image.tokens} tokens{FOUND.get(image.cache, '')}"
        for image in sample.images
    ]
    spent = sample.timeline.spent()
    total = max(sum(spent.values()), 1e-9)
    begun = 0.0
    for name, seconds in spent.items():
        start, width = (
            round(begun / total * BAR_CHARS),
            max(1 if seconds > 0 else 0, round(seconds / total * BAR_CHARS)),
        )
        bar = (" " * start + "#" * width)[:BAR_CHARS].ljust(BAR_CHARS)
        cut = "   <- ended here" if sample.error_code is not None and name == list(spent)[-1] else ""
        lacked = (
            f", {_ms(sample.lacked_kv)} of it for KV blocks"
            if name == "wait" and sample.lacked_kv > 0
            else ""
        )
        lines.append(f"  {name:<12}|{bar}| {_ms(seconds):>10}  {MEANING[name]}{lacked}{cut}")
        begun += seconds
    return "\n".join(lines)


def degradation(one: Degraded) -> str:
    """What the request was given less of, and why."""
    sizes = "" if one.before is None else f" {one.before} -> {one.after} tokens"
    return f"degraded: {one.kind.value}{sizes} ({one.why})"


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
