"""The section `retry` of serve.toml."""

from pydantic import Field, model_validator

from toolkit.core.config import Section


class RetryConfig(Section):
    """When a failed attempt is made again; only ever before the first token and within the TTFT budget."""

    max_attempts: int = Field(
        3, ge=1, le=10, description="Attempts of one request in all; 1: a failed one is told at once."
    )
    budget_share: float = Field(
        0.1, ge=0, le=1, description="Retries in window_s, as a share of the requests in it. The rest fails."
    )
    budget_least: int = Field(
        3,
        ge=0,
        le=1_000_000,
        description="Retries in window_s whatever came in it: an idle service may retry too.",
    )
    window_s: float = Field(30.0, ge=0.1, le=86_400, description="Which requests count as recent.")
    base_s: float = Field(
        0.05,
        gt=0,
        le=3600,
        description="The first retry waits between 0 and this; each next one up to twice as long.",
    )
    cap_s: float = Field(0.5, gt=0, le=3600, description="Longest wait before a retry.")
    stall_share: float = Field(
        0.6,
        gt=0,
        le=1,
        description="Share of its TTFT budget after which an attempt leaves a pair that shows no sign of life, where there is another. 1: never.",
    )

    @model_validator(mode="after")
    def _cap_over_base(self) -> "RetryConfig":
        if self.cap_s < self.base_s:
            raise ValueError(f"cap_s = {self.cap_s} is below base_s = {self.base_s}: set it to at least that")
        return self
