"""The admin API of a running gateway, from outside: where it is, and one call of it.

The gateway writes admin.json into its run folder each time it starts. It is its owner's alone: it may hold a token.
"""

import http.client
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import Field

from toolkit.core.config import Section, read_toml
from toolkit.core.errors import EnvironmentFault, ToolkitError, UsageFault

ADMIN_FILE = "admin.json"
TOKEN_VARIABLE = "TOOLKIT_ADMIN_TOKEN"  # noqa: S105 - its name
ANSWER_S = 10.0
LONGEST_S = 30 * 86_400.0
"""For which a change can be made that is taken back by itself."""


class Door(Section):
    """Where the admin API answers."""

    url: str = Field(description="http://host:port")
    token: str = Field(
        "", repr=False, description="The token made for this service; empty where tokens_file names others."
    )
    tokens_file: str = Field("", description="Where the tokens are, on the gateway's machine.")

    def write(self, run_dir: Path) -> None:
        """In one step; only its owner may read it. Raises EnvironmentFault."""
        path = run_dir / ADMIN_FILE
        temporary = path.with_suffix(".json.new")
        try:
            temporary.unlink(missing_ok=True)
            temporary.touch(mode=0o600)
            temporary.write_text(self.model_dump_json(indent=2), encoding="utf-8")
            temporary.replace(path)
        except OSError as error:
            raise EnvironmentFault(f"{path} cannot be written ({error.strerror}).") from error

    @classmethod
    def read(cls, run_dir: Path) -> "Door":
        """Raises UsageFault, and EnvironmentFault for a run folder where no gateway has started yet."""
        path = run_dir / ADMIN_FILE
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            if isinstance(error, FileNotFoundError) and run_dir.is_dir():
                raise EnvironmentFault(
                    f"{path}: not there: no gateway of that run folder has started."
                ) from error
            why = error.strerror if isinstance(error, OSError) else "it is something else"
            raise UsageFault(
                f"{path}: cannot be read ({why}). Name the run folder of a running `toolkit serve` with --run; it is the"
                " owner of that service who may change it."
            ) from error


class Refused(ToolkitError):
    """The API said no; the message is its own. http_status, told_code: of its answer."""

    def __init__(self, status: int, error: Mapping[str, Any]) -> None:
        super().__init__(str(error.get("message") or f"The admin API answered {status}."))
        self.http_status = status
        self.told_code = str(error.get("code") or "")


def token_of(door: Door, environ: Mapping[str, str]) -> str:
    """TOOLKIT_ADMIN_TOKEN, else the service's own, else the first of tokens_file. Raises UsageFault."""
    if found := environ.get(TOKEN_VARIABLE) or door.token:
        return found
    try:
        tokens = read_toml(Path(door.tokens_file))
    except UsageFault as error:
        raise UsageFault(f"{error.message} Give your token in {TOKEN_VARIABLE}.") from error
    return next((str(token) for token in tokens.values()), "")


def call(door: Door, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The document at /admin/v1 + path. Raises Refused, and EnvironmentFault when nobody answers there."""
    url = urlsplit(door.url)
    connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=ANSWER_S)
    headers = {"authorization": f"Bearer {token_of(door, os.environ)}", "content-type": "application/json"}
    try:
        connection.request(
            method, f"/admin/v1{path}", json.dumps(body).encode() if body is not None else None, headers
        )
        response = connection.getresponse()
        document = json.loads(response.read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise EnvironmentFault(
            f"No gateway answers at {door.url} ({error or type(error).__name__}). Does that service still run?"
        ) from error
    finally:
        connection.close()
    if response.status != http.HTTPStatus.OK:
        raise Refused(response.status, document.get("error") or {})
    return dict(document)
