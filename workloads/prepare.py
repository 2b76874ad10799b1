"""Plan -> request bodies, all bytes made before the clock starts: encoding a photo inside the timed window would delay
that request and the reading of every other open stream."""

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import orjson
import pybase64

from toolkit.core.errors import UsageFault
from toolkit.core.plan import Plan, PlannedRequest
from workloads.images import encode


@dataclass(frozen=True, slots=True)
class Prepared:
    """A planned request, ready to be written to a socket."""

    planned: PlannedRequest
    headers: tuple[tuple[str, str], ...]
    body: bytes


def prepare(
    plan: Plan,
    model: str,
    extra_body: Mapping[str, Any],
    max_body_bytes: int,
    api_key: str = "",
    on_ready: Callable[[int], None] = lambda _: None,
) -> tuple[Prepared, ...]:
    """Every request of the plan as bytes, encoded on all cores; `on_ready` is told how many are done.

    Raises UsageFault when they would take more than `max_body_bytes`.
    """
    prepared: list[Prepared] = []
    total_bytes = 0
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        pending = [pool.submit(_prepare, request, model, extra_body, api_key) for request in plan.requests]
        try:
            for future in pending:
                prepared.append(future.result())
                total_bytes += len(prepared[-1].body)
                if total_bytes > max_body_bytes:
                    raise UsageFault(
                        f"the bodies of {len(plan.requests)} requests pass {max_body_bytes / 1e9:.1f} GB after "
                        f"{len(prepared)} of them: ask for a lower rate or duration, or raise max_body_bytes in the profile."
                    )
                on_ready(len(prepared))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return tuple(prepared)


def chat_body(
    request: PlannedRequest, images: tuple[bytes, ...], model: str, extra_body: Mapping[str, Any]
) -> dict[str, Any]:
    """The OpenAI chat-completions body; images (JPEG) go before the text, as data URIs."""
    content: str | list[dict[str, Any]] = request.text
    if images:
        content = [{"type": "image_url", "image_url": {"url": _data_uri(image)}} for image in images]
        content.append({"type": "text", "text": request.text})
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": content}],
        "max_tokens": request.max_tokens,
        "stream": request.stream,
    }
    if request.stream:
        body["stream_options"] = {"include_usage": True}
    return {**body, **extra_body}


def _prepare(request: PlannedRequest, model: str, extra_body: Mapping[str, Any], api_key: str) -> Prepared:
    images = tuple(encode(recipe) for recipe in request.images)
    headers = [("content-type", "application/json"), ("x-slo-class", request.slo_class.value)]
    headers.extend(authorization(api_key))
    return Prepared(request, tuple(headers), orjson.dumps(chat_body(request, images, model, extra_body)))


def authorization(api_key: str) -> tuple[tuple[str, str], ...]:
    """The header that carries the key; none without a key."""
    return (("authorization", f"Bearer {api_key}"),) if api_key else ()


def _data_uri(jpeg: bytes) -> str:
    return "data:image/jpeg;base64," + pybase64.b64encode(jpeg).decode("ascii")
