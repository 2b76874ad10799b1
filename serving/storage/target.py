"""Which store a configuration means, checked as far as that can be told without asking it.

Secrets are never part of the configuration, which is printed and written to run folders: the library takes them from
the usual environment variables, and from a file that the configuration only names.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from serving.storage_config import StorageConfig
from toolkit.core.config import read_toml
from toolkit.core.errors import EnvironmentFault, UsageFault

if TYPE_CHECKING:
    from obstore.store import ObjectStore

CONNECT_S = 5.0
PREFIXES = {"s3": "AWS_", "gs": "GOOGLE_", "az": "AZURE_"}
ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_ENDPOINT_URL_S3"),
    "gs": ("GOOGLE_BASE_URL",),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
S3_ENDPOINT = "AWS_ENDPOINT_URL_S3"
ACCOUNT = "AZURE_STORAGE_ACCOUNT_NAME"


@dataclass(frozen=True, slots=True)
class Target:
    """A store. endpoint: "" for the provider's own; options: what is laid over the environment, secrets among them."""

    url: str
    endpoint: str
    account: str
    timeout_s: float
    options: Mapping[str, str] = field(repr=False)

    @property
    def place(self) -> str:
        """What names it, without a secret: what was spooled for one place never goes to another."""
        return " ".join(part for part in (self.url, self.endpoint, self.account) if part)

    def open(self) -> "ObjectStore":
        """Nothing is asked of it yet. Raises UsageFault, and EnvironmentFault for a folder that cannot be made."""
        from obstore.exceptions import BaseError
        from obstore.store import LocalStore, from_url

        parts = urlsplit(self.url)
        if parts.scheme == "file":
            folder = Path(unquote(parts.path))
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                return LocalStore(folder, automatic_cleanup=True)
            except (OSError, BaseError) as error:
                raise EnvironmentFault(f"storage.url: {folder} cannot be made: {brief(error)}.") from error
        config: Any = dict(self.options)
        try:
            return from_url(
                self.url,
                config=config,
                client_options={
                    "allow_http": self.endpoint.startswith("http://"),
                    "connect_timeout": timedelta(seconds=CONNECT_S),
                    "timeout": timedelta(seconds=self.timeout_s),
                },
                retry_config={"max_retries": 0},  # the spool tries again, at its own pace
            )
        except (BaseError, ValueError, FileNotFoundError) as error:
            raise UsageFault(f"storage: {brief(error)}.") from error


def target(config: StorageConfig) -> Target | None:
    """None where nothing is stored. Reads the environment, as the library does by itself. Raises UsageFault."""
    if not config.url:
        return None
    scheme = urlsplit(config.url).scheme
    if scheme == "file":
        return Target(config.url, "", "", config.timeout_s, {})
    options = _from_file(config.credentials_file, PREFIXES[scheme])
    if config.endpoint:
        options[ENDPOINTS[scheme][0]] = config.endpoint
    if config.region:
        options["AWS_REGION"] = config.region
    given = {**os.environ, **options}
    if config.endpoint and scheme == "s3" and given.get(S3_ENDPOINT, config.endpoint) != config.endpoint:
        raise UsageFault(f"storage.endpoint: {S3_ENDPOINT} in the environment would win over it; unset it.")
    endpoint = next((given[name] for name in reversed(ENDPOINTS[scheme]) if given.get(name)), "")
    _complete(scheme, given, endpoint)
    if scheme == "az":
        options[ACCOUNT] = given[ACCOUNT]
    return Target(config.url, endpoint, given.get(ACCOUNT, ""), config.timeout_s, options)


def brief(error: BaseException) -> str:
    """A library's message in one line, with the cause below it, and without query strings: they may hold a signature."""
    text = str(error)
    line = " ".join(
        word.split("?", 1)[0] if "://" in word else word for word in text.split("\n", 1)[0].strip().split(" ")
    )
    cause = re.search(r'message: "([^"]+)"', text)
    found = f"{line} ({cause[1]})" if cause and cause[1] not in line else line
    return found[:300].rstrip(".") or type(error).__name__


def _from_file(path: str, prefix: str) -> dict[str, str]:
    found = read_toml(Path(path).expanduser()) if path else {}
    for name, value in found.items():
        if not name.startswith(prefix) or not isinstance(value, str):
            raise UsageFault(f'{path}: {name}: write lines as {prefix}NAME = "value".')
    return found


def _complete(scheme: str, given: Mapping[str, str], endpoint: str) -> None:
    """Raises UsageFault for credentials that are missing in whole or in part, where that can be told."""
    if scheme == "s3":
        key, secret = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"
        if bool(given.get(key)) != bool(given.get(secret)):
            there, missing = (key, secret) if given.get(key) else (secret, key)
            raise UsageFault(f"storage: {there} is set and {missing} is not: set both, or neither.")
        others = ("AWS_SKIP_SIGNATURE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI")
        if endpoint and not any(given.get(name) for name in (key, *others)):
            raise UsageFault(
                f"storage: {endpoint} needs {key} and {secret}, in the environment or in storage.credentials_file."
            )
    elif scheme == "gs":
        for name in ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT"):
            if given.get(name) and not Path(given[name]).is_file():
                raise UsageFault(f"storage: {name} names no file: {given[name]}.")
    elif not given.get(ACCOUNT):
        raise UsageFault(f"storage: set {ACCOUNT}, in the environment or in storage.credentials_file.")
