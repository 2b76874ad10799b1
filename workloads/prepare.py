"""Plan -> request bodies, all bytes made before the clock starts: encoding a photo inside the timed window would delay
that request and the reading of every other open stream."""

import os
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import orjson
import pybase64

from toolkit.core.errors import UsageFault
from toolkit.core.plan import ImageRecipe, Plan, PlannedRequest
from toolkit.core.sample import SloClass
from workloads.compose import reply_to
from workloads.image_server import path_of
from workloads.images import encode, forget_bases
from workloads.media import media_type
from workloads.memory import keep_large_blocks_apart
from workloads.shelf import Shelf

AHEAD = 4  # bodies made, or being made, per core before they are taken


@dataclass(frozen=True, slots=True)
class Prepared:
    """A planned request, ready to be written to a socket. body: or a view of it, where it lies in a file.

    attempt: how often it was sent before.
    """

    planned: PlannedRequest
    headers: tuple[tuple[str, str], ...]
    body: bytes | memoryview
    attempt: int = 0


def prepare(
    plan: Plan,
    model: str,
    extra_body: Mapping[str, Any],
    max_body_bytes: int,
    api_key: str = "",
    on_ready: Callable[[int], None] = lambda _: None,
    only: Callable[[int], bool] = lambda _: True,
) -> tuple[Prepared, ...]:
    """Every request of the plan as bytes, encoded on all cores; `on_ready` is told how many are done.

    only: which requests, by their index; the others are somebody else's.
    Raises UsageFault when they would take more than `max_body_bytes`, or the disk has no room for what memory should not hold.
    """
    keep_large_blocks_apart()
    prepared: list[Prepared] = []
    total_bytes = 0
    mine = [request for request in plan.requests if only(request.index)]
    write = _Writer(plan, model, extra_body, api_key)
    shelf = Shelf()
    try:
        for request, body in zip(mine, _in_order(write, mine), strict=True):
            total_bytes += len(body)
            if total_bytes > max_body_bytes:
                raise UsageFault(
                    f"the bodies of {len(mine)} requests pass {max_body_bytes / 1e9:.1f} GB after "
                    f"{len(prepared)} of them: ask for a lower rate or duration, or raise max_body_bytes in the profile."
                )
            prepared.append(Prepared(request, write.headers(request), shelf.put(body)))
            on_ready(len(prepared))
    finally:
        shelf.close()
        forget_bases()
    return tuple(prepared)


def _in_order(
    write: Callable[[PlannedRequest], bytes], requests: Sequence[PlannedRequest]
) -> Iterator[bytes]:
    """The bodies in the order of the requests, made on all cores, few of them ahead of the one that is taken."""
    cores = os.cpu_count() or 1
    ahead: deque[Future[bytes]] = deque()
    with ThreadPoolExecutor(cores) as pool:
        try:
            for request in requests:
                ahead.append(pool.submit(write, request))
                if len(ahead) > AHEAD * cores:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def chat_body(
    request: PlannedRequest,
    images: Sequence[str],
    model: str,
    extra_body: Mapping[str, Any],
    history: Sequence[tuple[str, str]] = (),
) -> dict[str, Any]:
    """The OpenAI chat-completions body. images: URLs, data URIs among them, which go before the text.

    history: (asked, answered) of the turns before. They carry text alone: what they showed is not sent again.
    """
    content: str | list[dict[str, Any]] = request.text
    if images:
        content = [{"type": "image_url", "image_url": {"url": url}} for url in images]
        content.append({"type": "text", "text": request.text})
    messages: list[dict[str, Any]] = []
    for asked, answered in history:
        messages.append({"role": "user", "content": asked})
        messages.append({"role": "assistant", "content": answered})
    body: dict[str, Any] = {
        "model": model,
        "messages": [*messages, {"role": "user", "content": content}],
        "max_tokens": request.max_tokens,
        "stream": request.stream,
    }
    if request.stream:
        body["stream_options"] = {"include_usage": True}
    return {**body, **extra_body}


class _Writer:
    """Writes requests of one plan. Called from several threads at once."""

    def __init__(self, plan: Plan, model: str, extra_body: Mapping[str, Any], api_key: str) -> None:
        self._plan = plan
        self._model = model
        self._extra_body = extra_body
        headers = (("content-type", "application/json"), *authorization(api_key))
        self._headers = {slo: (*headers, ("x-slo-class", slo.value)) for slo in SloClass}
        self._turns: defaultdict[str, list[PlannedRequest]] = defaultdict(list)
        for request in plan.requests:
            if request.conversation:
                self._turns[request.conversation].append(request)
        seen = Counter(image for request in plan.requests for image in request.images)
        # An image that comes again is encoded by whoever needs it first; the others wait for the lock, not for luck.
        self._again = {recipe: _Once(recipe) for recipe, times in seen.items() if times > 1}

    def headers(self, request: PlannedRequest) -> tuple[tuple[str, str], ...]:
        return self._headers[request.slo_class]

    def __call__(self, request: PlannedRequest) -> bytes:
        return orjson.dumps(
            chat_body(request, self._images(request), self._model, self._extra_body, self._history(request))
        )

    def _images(self, request: PlannedRequest) -> list[str]:
        if self._plan.images_url:
            return [self._plan.images_url + path_of(request.index, n) for n in range(len(request.images))]
        return [
            self._again[recipe].uri() if recipe in self._again else _data_uri(encode(recipe))
            for recipe in request.images
        ]

    def _history(self, request: PlannedRequest) -> list[tuple[str, str]]:
        earlier = self._turns.get(request.conversation, [])
        return [(t.text, reply_to(t, self._plan.seed)) for t in earlier if t.turn < request.turn]


class _Once:
    """One image's data URI, made at the first call."""

    def __init__(self, recipe: ImageRecipe) -> None:
        self._recipe = recipe
        self._lock = threading.Lock()
        self._uri = ""

    def uri(self) -> str:
        with self._lock:
            self._uri = self._uri or _data_uri(encode(self._recipe))
            return self._uri


def authorization(api_key: str) -> tuple[tuple[str, str], ...]:
    """The header that carries the key; none without a key."""
    return (("authorization", f"Bearer {api_key}"),) if api_key else ()


def _data_uri(image: bytes) -> str:
    return f"data:{media_type(image)};base64," + pybase64.b64encode(image).decode("ascii")
