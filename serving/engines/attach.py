"""Engines that run already, by their URLs."""

import urllib.parse

from serving.config import EngineConfig
from serving.service import EngineEndpoint
from toolkit.core.errors import UsageFault

SGLANG_BOOTSTRAP_PORT = 8998  # default of --disaggregation-bootstrap-port


def endpoints(config: EngineConfig) -> tuple[EngineEndpoint, ...]:
    """The attached engines, prefills first. Raises UsageFault for a URL that is none."""
    prefills = (_prefill(f"prefill-{number}", url) for number, url in enumerate(config.attach_prefill))
    decodes = (_decode(f"decode-{number}", url) for number, url in enumerate(config.attach_decode))
    return (*prefills, *decodes)


def _prefill(name: str, text: str) -> EngineEndpoint:
    parts, port = _parse(text)
    query = urllib.parse.parse_qs(parts.query)
    if unknown := sorted(set(query) - {"bootstrap_port"}):
        raise UsageFault(
            f"attach_prefill {text!r}: unknown {unknown[0]!r}; only bootstrap_port is understood."
        )
    bootstrap = query.get("bootstrap_port", [str(SGLANG_BOOTSTRAP_PORT)])[0]
    if not bootstrap.isdigit() or not 0 < int(bootstrap) < 65536:
        raise UsageFault(f"attach_prefill {text!r}: bootstrap_port must be a port number.")
    host = parts.hostname or ""
    return EngineEndpoint(
        name=name, role="prefill", url=_base(parts, port), bootstrap_host=host, bootstrap_port=int(bootstrap)
    )


def _decode(name: str, text: str) -> EngineEndpoint:
    parts, port = _parse(text)
    if parts.query:
        raise UsageFault(f"attach_decode {text!r}: a decode engine takes no query.")
    return EngineEndpoint(name=name, role="decode", url=_base(parts, port))


def _parse(text: str) -> tuple[urllib.parse.SplitResult, int]:
    parts = urllib.parse.urlsplit(text)
    try:
        port = parts.port
    except ValueError:
        port = None
    if parts.scheme != "http" or not parts.hostname or not port or parts.path not in ("", "/"):
        raise UsageFault(f"engine URL {text!r}: write it as http://host:port.")
    return parts, port


def _base(parts: urllib.parse.SplitResult, port: int) -> str:
    host = parts.hostname or ""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
