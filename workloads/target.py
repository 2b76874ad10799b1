"""What is loaded: where it answers, whether it is ready, which model it serves."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.core.errors import EnvironmentFault, UsageFault
from toolkit.core.http.errors import TransportError

if TYPE_CHECKING:
    from toolkit.core.http.client import HttpClient

FALLBACK_URL = "http://127.0.0.1:8000"
MAX_ANSWER_BYTES = 1_000_000
ANSWER_S = 15.0  # for a page that no engine has to compute


def default_url(runs_dir: Path) -> str:
    """The gateway of the service that was started last (runs/latest/service.json), else the default port."""
    return gateway_of(runs_dir / "latest") or FALLBACK_URL


def gateway_of(run_dir: Path) -> str | None:
    """The gateway of the service with that run folder; None where it holds none."""
    try:
        service = json.loads((run_dir / "service.json").read_text(encoding="utf-8"))
        return str(service["gateway_url"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def base_url(url: str) -> str:
    """The URL without a trailing slash or /v1, since both spellings are common; HOST:PORT alone is http."""
    return with_scheme(url).rstrip("/").removesuffix("/v1")


def with_scheme(url: str) -> str:
    """What is given without a scheme is meant as http."""
    return url if "://" in url else f"http://{url}"


async def find_models(client: "HttpClient", url: str, headers: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """The models that a ready target lists, at least one.

    Raises EnvironmentFault when nothing answers there, or not as an OpenAI-compatible server; UsageFault when it
    asks for a key.
    """
    status, body = await _get(client, f"{url}/readyz", headers)
    if status == 503:
        raise EnvironmentFault(
            f"{url} is not ready ({_reason(body)}). Wait for `toolkit serve` to print its URLs."
        )
    status, body = await _get(client, f"{url}/v1/models", headers)
    if status in (401, 403):
        given = any(name.lower() == "authorization" for name, _ in headers)
        raise UsageFault(
            f"{url} does not know this API key."
            if given
            else f"{url} asks for an API key: give --api-key or set TOOLKIT_API_KEY."
        )
    try:
        if status != 200:
            raise ValueError(f"status {status}")
        listed = tuple(str(model["id"]) for model in json.loads(body)["data"])
        if not listed:
            raise ValueError("an empty list")
        return listed
    except (ValueError, LookupError, TypeError) as error:
        raise EnvironmentFault(
            f"{url}/v1/models names no model ({error}): is this an OpenAI-compatible server?"
        ) from error


async def _get(client: "HttpClient", url: str, headers: Sequence[tuple[str, str]]) -> tuple[int, bytes]:
    try:
        async with asyncio.timeout(ANSWER_S):
            response = await client.send("GET", url, headers)
            try:
                return response.status, await response.read(MAX_ANSWER_BYTES)
            finally:
                response.close()
    except TimeoutError as error:
        raise EnvironmentFault(
            f"{url} takes a connection and does not answer within {ANSWER_S:g} s: is it a server of HTTP, and is it well?"
        ) from error
    except ValueError as error:
        raise UsageFault(str(error)) from error
    except TransportError as error:
        if "certificate verify failed" in str(error):
            raise EnvironmentFault(
                f"{url}: nobody vouches for its certificate ({error}). Name a file with its authority's in SSL_CERT_FILE."
            ) from error
        raise EnvironmentFault(
            f"nothing answers at {url} ({error}). Start the service with `make serve` or name another with --url; without it, "
            "the newest service of ./runs in this folder is meant, else port 8000."
        ) from error


def _reason(body: bytes) -> str:
    """What stands in the way, by the gateway's own page; else its text."""
    try:
        document = json.loads(body)
        faults = [f"{name}: {fault}" for name, fault in document["faults"].items()]
        return "; ".join([str(document["status"]), *faults])[:300]
    except (ValueError, LookupError, TypeError, AttributeError):
        return " ".join(body.decode("utf-8", "replace").split())[:200] or "no reason given"
