"""What this gateway's requests ask of each decode's pool, as it is published. Pure."""

from serving.schedule.admit import Admission
from serving.schedule.shared.fair import Demand


def demand_of(admission: Admission, now: float) -> dict[str, Demand]:
    """By decode. Who waits has no decode yet: it counts everywhere, in the proportion of the pools' sizes."""
    pools = admission.leases.pools
    every_token = admission.leases.tokens
    held: dict[str, dict[str, int]] = {name: {} for name in pools}
    for who, lease in admission.holding():
        for name, pages in lease.places:
            if name in held:
                held[name][who] = held[name].get(who, 0) + pages
    waiting = list(admission.lining_up())
    longest_s = max((now - one.ready for _, one, _ in waiting), default=0.0)
    demand = {}
    for name, pool in pools.items():
        by_class, largest = held[name], 0
        part = pool.tokens / every_token if every_token else 0.0
        for who, _, need in waiting:
            pages = need.pages(pool)
            if pages > admission.leases.cap_pages(pool):
                continue
            largest = max(largest, pages)
            by_class[who] = by_class.get(who, 0) + max(1, int(part * pages))
        demand[name] = Demand(by_class, largest, longest_s)
    return demand
