"""The section `shared` of serve.toml."""

from pydantic import Field

from serving.store_url import StoreUrl
from toolkit.core.config import Section


class SharedConfig(Section):
    """Several gateways before the same engines: how they share KV pools and the retry budget."""

    url: StoreUrl = Field(
        "",
        repr=False,
        description=(
            "Valkey or Redis where the gateways agree: redis://host:6379/0, rediss://user:password@host:6380/0 (TLS),"
            " unix:///path/to/socket. Empty: this gateway has the engines to itself. No request waits for it; nobody else should reach it."
        ),
    )
    name: str = Field(
        "default",
        pattern=r"^[A-Za-z0-9._-]{1,64}$",
        description="The same for all gateways before the same engines, which they name by the same URLs.",
    )
    ttl_s: float = Field(
        5.0,
        ge=0.5,
        le=60,
        description=(
            "Time after which the others have what a gateway held that was killed; one that is frozen for as long ends its own"
            " requests. The same for all gateways."
        ),
    )
    alone: bool = Field(
        True,
        description=(
            "Whether a gateway that does not reach the server works on its share, pool / gateways. false: it takes nothing new and"
            " ends what it has, so that nothing is given twice even if it alone is cut off."
        ),
    )
