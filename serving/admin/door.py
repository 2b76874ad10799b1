"""Who may come in, and where: the tokens of the admin API and the file that tells of it."""

import secrets
from collections.abc import Mapping
from pathlib import Path

from serving.admin_config import AdminConfig
from serving.engines.commands import reached_at
from serving.keys import Keys
from toolkit.core.admin import Door
from toolkit.core.errors import EnvironmentFault, UsageFault

OWNER = "owner"
"""The name that changes bear which were made with the service's own token."""


def door_of(config: AdminConfig, run_dir: Path, port: int) -> Door:
    """At that port, with the token that an earlier gateway of this run folder had, else a new one."""
    url = f"http://{reached_at(config.host)}:{port}"
    if config.tokens_file:
        return Door(url=url, tokens_file=str(Path(config.tokens_file).absolute()))
    try:
        token = Door.read(run_dir).token
    except (UsageFault, EnvironmentFault):
        token = ""
    return Door(url=url, token=token or secrets.token_urlsafe(32))


def keys_of(door: Door) -> Keys:
    """Names by token. Raises UsageFault."""
    own: Mapping[str, str] = {OWNER: door.token}
    return Keys(own) if door.token else Keys.load(door.tokens_file)
