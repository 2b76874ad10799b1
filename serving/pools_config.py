"""The tables `[[pools]]` and `[pairing]` of serve.toml: which prefills serve which requests, and who gets which."""

from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from toolkit.core.config import Section
from toolkit.core.errors import UsageFault
from toolkit.core.sample import WorkloadClass

Asked = Literal["text", "image", "text_only", "image_short", "multi_image_long", "high_res"]

_TEXT = (WorkloadClass.TEXT_ONLY,)
_IMAGE = (WorkloadClass.IMAGE_SHORT, WorkloadClass.MULTI_IMAGE_LONG, WorkloadClass.HIGH_RES)
_CLASSES: dict[str, tuple[WorkloadClass, ...]] = {
    "text": _TEXT,
    "image": _IMAGE,
    **{one.value: (one,) for one in (*_TEXT, *_IMAGE)},
}


class PairingConfig(Section):
    """Which pair a request gets."""

    affinity: bool = Field(
        True,
        description=(
            "Whether requests with the same image, long beginning or prompt_cache_key go to the same prefill, which has them"
            " cached. With one prefill it changes nothing."
        ),
    )
    affinity_bound: float = Field(
        1.25,
        ge=1,
        le=100,
        description="How far above the mean outstanding prompt tokens a prefill may be and still get them; beyond, the next one does.",
    )


class PoolConfig(Section):
    """Prefill instances of one kind of request, and its share of the decodes."""

    name: str = Field(
        pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$",
        description="In metrics and messages: small letters, digits, - and _, at most 32.",
    )
    prefills: tuple[str, ...] = Field(
        (), description="Its prefill instances, as prefill-0. Empty: those that no other pool names."
    )
    classes: tuple[Asked, ...] = Field(
        min_length=1,
        description="What it serves: text, image, or of these text_only, image_short, multi_image_long, high_res.",
    )
    share: float = Field(
        1.0,
        gt=0,
        le=1000,
        description="Weight of its share of what decodes hold; what it leaves unused others may take.",
    )
    fallback: str = Field(
        "", description="Pool that serves its requests while none of its prefills does. Empty: 503."
    )

    @property
    def workload_classes(self) -> tuple[WorkloadClass, ...]:
        """What it serves, modalities as their classes."""
        return tuple(one for asked in self.classes for one in _CLASSES[asked])


def _whole(pools: tuple[PoolConfig, ...]) -> tuple[PoolConfig, ...]:
    if not pools:
        return pools
    names = [pool.name for pool in pools]
    if twice := _twice(names):
        raise ValueError(f"two pools are named {twice!r}")
    if twice := _twice(name for pool in pools for name in pool.prefills):
        raise ValueError(f"{twice} is in two pools; a prefill belongs to one")
    served = [one.value for pool in pools for one in pool.workload_classes]
    if twice := _twice(served):
        raise ValueError(f"{twice} requests are in two pools; they go to one")
    if missing := sorted({one.value for one in (*_TEXT, *_IMAGE)} - set(served)):
        raise ValueError(f"no pool serves {', '.join(missing)}: add them to the classes of one")
    for pool in pools:
        if pool.fallback and (pool.fallback not in names or pool.fallback == pool.name):
            others = ", ".join(name for name in names if name != pool.name) or "none"
            raise ValueError(
                f"the fallback {pool.fallback!r} of {pool.name!r} is no other pool; those are: {others}"
            )
    return pools


PoolConfigs = Annotated[tuple[PoolConfig, ...], AfterValidator(_whole)]


def members(pools: tuple[PoolConfig, ...], prefills: Iterable[str]) -> dict[str, frozenset[str]]:
    """The instances of each pool. Raises UsageFault for names that are none, pools without any, and prefills in none."""
    known = sorted(prefills)
    named = {name for pool in pools for name in pool.prefills}
    if unknown := sorted(named - set(known)):
        raise UsageFault(
            f"pools: there is no {unknown[0]!r}; this service's prefills are {', '.join(known)}."
        )
    rest = frozenset(known) - named
    of = {pool.name: frozenset(pool.prefills) or rest for pool in pools}
    if empty := [name for name, its in of.items() if not its]:
        raise UsageFault(f"pools: {empty[0]!r} has no prefill: the other pools name all there are.")
    if pools and (idle := sorted(set(known) - frozenset().union(*of.values()))):
        raise UsageFault(f"pools: {idle[0]} is in no pool, so it would never serve: add it to one.")
    return of


def _twice(names: Iterable[str]) -> str | None:
    return next((name for name, count in Counter(names).items() if count > 1), None)
