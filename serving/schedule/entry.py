"""Who of the waiting may enter now, and on which decode: turns, priority and KV leases together. Pure.

somebody is due   the one whose turn it is (order.py), where it fits. Fits nowhere: the decode that is nearest to it is
                  reserved, and its pages gather as others finish; only those whose turn it is enter there until nobody
                  due waits. Others may enter other decodes as long as that leaves slots for all that fit there at once
nobody is due     of those that fit, the highest priority
"""

from collections.abc import Mapping

from serving.schedule.lease import Leases, Need
from serving.schedule.order import Order
from serving.schedule.priority import Waiting


def next_in(
    order: Order, leases: Leases, needs: Mapping[str, Need], now: float, slots: int
) -> tuple[Waiting, str] | None:
    """Who enters next and where; None when nobody fits. slots: how many may be inside at once. Its turn is counted when it is
    taken out with Order.enter."""
    head, without = order.turn(now), None
    if head is None:
        leases.reserved = None
    elif leases.fits(needs[head.key]):
        return head, leases.choose(needs[head.key])
    else:
        without = leases.reserve(needs[head.key])
        if without is None or leases.elsewhere(without) + leases.at_once(without) >= slots:
            return None
    fits = leases.room(without)
    chosen = order.best if head is None else order.passing
    one = chosen(now, lambda other: fits(needs[other.key]))
    return None if one is None else (one, leases.choose(needs[one.key], without))
