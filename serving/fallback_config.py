"""The endpoint that answers where this service cannot: section `fallback` of serve.toml."""

from pathlib import Path
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from toolkit.core.config import Section
from toolkit.core.errors import UsageFault

MAX_KEY_CHARS = 4096


class FallbackConfig(Section):
    """An OpenAI-compatible endpoint that gets the original request when no pair can answer it in time."""

    url: str = Field(
        "",
        description="Base URL up to and with /v1, as https://host/v1. Empty: none. Clients' requests and images go there.",
    )
    api_key_file: str = Field("", description="File with the key that is sent there. Empty: none is sent.")
    model: str = Field("", description="Model to ask for there. Empty: the one that is served here.")
    max_in_flight: int = Field(
        16,
        ge=1,
        le=1_000_000,
        description="Requests there at once; beyond, they are refused as if there was none.",
    )
    answer_timeout_s: float = Field(
        120.0,
        gt=0,
        le=86_400,
        description="Longest wait for a non-streamed answer, of which no first token is seen: the TTFT budget does not end it.",
    )

    @field_validator("url")
    @classmethod
    def _base(cls, url: str) -> str:
        parts = urlsplit(url)
        try:
            sound = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:  # the port is no number, or none that there is
            sound = False
        if url and (not sound or parts.query or parts.fragment):
            raise ValueError(f"{url!r}: write it as http://host:port/v1 or https://host/v1")
        if parts.username or parts.password:
            raise ValueError("leave the credentials out of the URL: api_key_file is for them")
        return url.rstrip("/")

    def key(self) -> str:
        """What the key file holds; empty where there is none. Raises UsageFault."""
        if not self.api_key_file:
            return ""
        try:
            if not Path(self.api_key_file).is_file():
                raise ValueError("there is no such file")
            with Path(self.api_key_file).open(encoding="ascii") as file:
                key = file.read(2 * MAX_KEY_CHARS).strip()
        except (OSError, ValueError) as error:
            raise UsageFault(
                f"fallback.api_key_file: {self.api_key_file} cannot be read: {error}."
            ) from error
        if not key or not key.isprintable() or " " in key or len(key) > MAX_KEY_CHARS:
            raise UsageFault(
                f"fallback.api_key_file: {self.api_key_file} must hold one key and nothing else."
            )
        return key
