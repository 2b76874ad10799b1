"""The section `admin` of serve.toml."""

from ipaddress import ip_address

from pydantic import Field, model_validator

from toolkit.core.config import Section


class AdminConfig(Section):
    """Where a running gateway is changed."""

    host: str = Field(
        "127.0.0.1",
        description="Address of the admin API, a listener of its own. It has no TLS: beyond this machine it needs a proxy that has.",
    )
    port: int = Field(
        0, ge=0, le=65535, description="Its port; 0: a free one. The run folder's admin.json names it."
    )
    tokens_file: str = Field(
        "",
        description='File of `name = "token"` TOML lines; tokens of at least 16 characters. Empty: one is made for each service, in admin.json (readable by its owner alone).',
    )

    @model_validator(mode="after")
    def _known_to_others(self) -> "AdminConfig":
        if not self.tokens_file and not _is_loopback(self.host):
            raise ValueError(
                f"host = {self.host!r} can be reached from other machines, where nobody can read admin.json: name who may come in tokens_file"
            )
        return self


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
