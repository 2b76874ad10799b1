"""The section `schedule` of serve.toml, and what an SLO class is."""

from pydantic import Field

from toolkit.core.config import Section
from toolkit.core.sample import SloClass, WorkloadClass


class ScheduleConfig(Section):
    """How many requests may be where, and what counts as short."""

    max_in_flight: int = Field(
        64, ge=1, le=1_000_000, description="Requests inside the engines at once, at most."
    )
    min_in_flight: int = Field(
        2, ge=1, le=1_000_000, description="The least that the adaptive limit goes down to."
    )
    adaptive: bool = Field(
        True,
        description=(
            "Whether the limit moves between min_in_flight and max_in_flight: down when first tokens are late or engines"
            " refuse, up while they are in time; it begins at 8. false: it is max_in_flight."
        ),
    )
    first_token_share: float = Field(
        0.5,
        gt=0,
        le=1,
        description="Part of a TTFT budget that the engines may take; a later first token is late for the adaptive limit.",
    )
    max_waiting: int = Field(
        256,
        ge=1,
        le=1_000_000,
        description="Requests inside the gateway that are not in an engine yet; beyond: 429.",
    )
    workload_share: float = Field(
        0.5,
        gt=0,
        le=1,
        description="Part of an SLO class's seats (its room_share of max_waiting) that one workload class may take.",
    )
    short_tokens: int = Field(
        1024,
        ge=1,
        le=1_000_000_000,
        description="Text, image and max_tokens x n tokens up to which a request is short and may pass long ones.",
    )


class LeaseConfig(Section):
    """How much KV cache one request may take."""

    cap: float = Field(
        0.15,
        gt=0,
        le=1,
        description=(
            "Part of a decode engine's KV pool that one request may take at most: prompt and max_tokens, times n. Over it: 413"
            " kv_lease_exceeded, or smaller images where its SLO class has degrade."
        ),
    )
    look_interval_s: float = Field(
        1.0, ge=0.01, le=60, description="Time between two looks at what each decode engine has in use."
    )


def _shed() -> bool:
    flag: bool = Field(
        False, description="Refuse new requests of this class with 429 `shed`; those inside go on."
    )
    return flag


class ShedConfig(Section):
    """Which SLO and workload classes are refused at once. Mostly set for a while, by `toolkit admin shed`."""

    realtime: bool = _shed()
    standard: bool = _shed()
    batch: bool = _shed()
    text_only: bool = _shed()
    image_short: bool = _shed()
    multi_image_long: bool = _shed()
    high_res: bool = _shed()
    retry_after_s: float = Field(10.0, ge=1, le=3600, description="When those refused are told to come back.")

    @property
    def classes(self) -> frozenset[SloClass | WorkloadClass]:
        """Those that are refused."""
        return frozenset(one for one in (*SloClass, *WorkloadClass) if getattr(self, one.value, False))


def _ttft_budget_s(default: float) -> float:
    budget: float = Field(
        default, gt=0, le=86_400, description="Total budget from arrival to the first token."
    )
    return budget


def _weight(default: float) -> float:
    weight: float = Field(
        default,
        ge=1e-3,
        le=1e3,
        description="Factor of the priority, and share of the slots among those that are due.",
    )
    return weight


def _short_wait_s(default: float) -> float:
    wait: float = Field(
        default,
        ge=1e-6,
        le=86_400,
        description="Wait after which a short request is due: it goes before all that are not.",
    )
    return wait


def _long_wait_s(default: float) -> float:
    wait: float = Field(default, ge=1e-6, le=86_400, description="The same for a long request.")
    return wait


def _room_share(default: float) -> float:
    share: float = Field(
        default, gt=0, le=1, description="Part of schedule.max_waiting that this class may take."
    )
    return share


def _fallback(default: bool) -> bool:
    allowed: bool = Field(
        default, description="Whether fallback.url, where it is set, may answer in place of an error."
    )
    return allowed


class SloConfig(Section):
    """What one SLO class promises, and how its requests wait."""

    ttft_budget_s: float = _ttft_budget_s(3.0)
    weight: float = _weight(1.0)
    short_wait_s: float = _short_wait_s(0.5)
    long_wait_s: float = _long_wait_s(1.5)
    room_share: float = _room_share(0.75)
    degrade: bool = Field(
        False,
        description=(
            "Whether images may be made smaller where the request would be refused otherwise. Told in the header"
            " x-toolkit-degraded."
        ),
    )
    degrade_floor: float = Field(
        0.25, gt=0, le=1, description="Least part of any image's tokens that must be left after that."
    )
    degrade_max_tokens: int = Field(
        0,
        ge=0,
        description="What max_tokens may be lowered to, at least, where the request would be refused otherwise. 0: never lowered.",
    )
    fallback: bool = _fallback(True)


class RealtimeConfig(SloConfig):
    """Defaults of the class realtime."""

    ttft_budget_s: float = _ttft_budget_s(0.8)
    weight: float = _weight(4.0)
    short_wait_s: float = _short_wait_s(0.15)
    long_wait_s: float = _long_wait_s(0.3)


class BatchConfig(SloConfig):
    """Defaults of the class batch."""

    ttft_budget_s: float = _ttft_budget_s(300.0)
    weight: float = _weight(0.25)
    short_wait_s: float = _short_wait_s(30.0)
    long_wait_s: float = _long_wait_s(60.0)
    room_share: float = _room_share(0.5)
    fallback: bool = _fallback(False)
