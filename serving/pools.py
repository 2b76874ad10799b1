"""Which prefills are for which requests. Pure.

Without pools every prefill serves every request. With pools a request goes to the prefills of its class, and, while none of
them serves, to those of the pool's fallback; decodes are everybody's, in shares (schedule/shares.py).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from serving.pools_config import PoolConfig, members
from toolkit.core.sample import WorkloadClass


@dataclass(frozen=True, slots=True)
class Pool:
    """Some prefills. then: whose prefills serve while its own do not."""

    name: str
    prefills: frozenset[str]
    then: frozenset[str] = frozenset()


class Pools:
    """Every workload class has one pool. Raises UsageFault (pools_config.members)."""

    def __init__(self, configured: tuple[PoolConfig, ...], prefills: Iterable[str]) -> None:
        names = frozenset(prefills)
        of = members(configured, names)
        everybody = Pool("all", names)
        pools = {
            pool.name: Pool(pool.name, of[pool.name], of.get(pool.fallback, frozenset()))
            for pool in configured
        }
        self._of_class = {
            workload_class: pools[pool.name]
            for pool in configured
            for workload_class in pool.workload_classes
        }
        self.all: tuple[Pool, ...] = tuple(pools.values()) or (everybody,)
        self._default = self.all[0]

    def of(self, workload_class: WorkloadClass) -> Pool:
        """The pool for requests of that class; the first one for those whose class is not known."""
        return self._of_class.get(workload_class, self._default)

    def of_prefill(self, name: str) -> list[str]:
        """The pools that the instance is in; none for a decode."""
        return [pool.name for pool in self.all if name in pool.prefills]
