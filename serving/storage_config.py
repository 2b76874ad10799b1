"""The section `storage` of serve.toml."""

from urllib.parse import urlsplit

from pydantic import Field, model_validator

from toolkit.core.config import Section


class StorageConfig(Section):
    """Raw images and results in an object store; they may be personal data (docs/decisions/0018). Off by default.

    Credentials are never part of the configuration: they come from the environment, or from credentials_file.
    """

    url: str = Field(
        "",
        description="Where to: file:///path, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix. Empty: nothing is stored.",
    )
    images: bool = Field(False, description="Store each accepted image once, as it was received.")
    results: bool = Field(
        False, description="Store request (digests for images), answer and sample of each answered request."
    )
    retention_days: float = Field(
        0.0, ge=0, description="Delete what is older, found by listing every 6 hours; 0: keep it."
    )
    endpoint: str = Field(
        "", description="URL of a store other than the provider's own. Empty: AWS_ENDPOINT_URL and the like."
    )
    region: str = Field("", description="S3 region. Empty: AWS_REGION, else us-east-1.")
    credentials_file: str = Field(
        "",
        description='File of `AWS_SECRET_ACCESS_KEY = "..."` TOML lines (or AZURE_, GOOGLE_). Empty: the environment.',
    )
    spool_dir: str = Field(
        "", description="Folder in which entries wait for the store. Empty: spool in the folder of runs."
    )
    spool_mb: int = Field(
        1000, ge=1, description="Largest spool, MB; beyond: entries are dropped, and counted."
    )
    concurrency: int = Field(4, ge=1, le=64, description="Uploads at once.")
    timeout_s: float = Field(60.0, gt=0, description="Longest single request to the store.")
    drain_timeout_s: float = Field(
        1.5, ge=0, description="Longest wait for uploads at a stop; what is left waits in the spool."
    )

    @model_validator(mode="after")
    def _whole(self) -> "StorageConfig":
        if not self.url:
            if self.images or self.results:
                raise ValueError("images and results need a url, as s3://bucket/prefix")
            return self
        try:
            parts = urlsplit(self.url)
        except ValueError:
            raise ValueError("url is none") from None
        if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
            raise ValueError(
                "url holds credentials or a query: give those in the environment or in credentials_file"
            )
        if parts.scheme == "file":
            if parts.netloc or not parts.path.startswith("/"):
                raise ValueError("url of a local folder is file:///absolute/path")
        elif parts.scheme not in ("s3", "gs", "az"):
            wrong = f"{parts.scheme!r:.20}" if parts.scheme else "with a bare path"
            raise ValueError(f"url begins with file:///absolute/path, s3://, gs:// or az://, not {wrong}")
        elif not parts.netloc:
            raise ValueError(f"url names no bucket: {parts.scheme}://bucket/prefix")
        if not (self.images or self.results):
            raise ValueError("url is set, and neither images nor results are to be stored")
        if self.region and parts.scheme != "s3":
            raise ValueError("region is for s3://")
        if "@" in self.endpoint or (self.endpoint and not self.endpoint.startswith(("http://", "https://"))):
            raise ValueError("endpoint is an http(s) URL without credentials")
        return self
