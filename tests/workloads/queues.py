"""Queues in virtual time whose true attainment is known by formula, for tests of what is said about them."""

import heapq
import math

import numpy as np


def one_server(rng, rate, capacity, limit_s, duration_s):
    """M/M/1: arrival times, and each one's wait over the limit. Lindley's recursion as a running minimum."""
    at = np.sort(rng.uniform(0, duration_s, rng.poisson(rate * duration_s)))
    service = rng.exponential(1 / capacity, len(at))
    steps = np.concatenate([[0.0], service[:-1]]) - np.diff(at, prepend=0.0)
    steps[:1] = 0.0
    walk = np.cumsum(steps)
    return at, (walk - np.minimum.accumulate(np.minimum(walk, 0.0))) / limit_s


def many_servers(rng, rate, capacity, servers, limit_s, duration_s):
    """M/M/c, first come first served; capacity: of all servers together."""
    at = np.sort(rng.uniform(0, duration_s, rng.poisson(rate * duration_s)))
    service = rng.exponential(servers / capacity, len(at))
    free, waits = [0.0] * servers, np.empty(len(at))
    for n, (arrived, takes) in enumerate(zip(at.tolist(), service.tolist(), strict=True)):
        begun = max(arrived, free[0])
        heapq.heapreplace(free, begun + takes)
        waits[n] = begun - arrived
    return at, waits / limit_s


def attainment(rate, capacity, limit_s, servers=1):
    """The share that waits no longer than the limit, for ever: 1 - C * exp(-(capacity - rate) * limit), C by Erlang."""
    if rate >= capacity:
        return 0.0
    load = rate * servers / capacity
    last = load**servers / math.factorial(servers) / (1 - load / servers)
    busy = last / (sum(load**k / math.factorial(k) for k in range(servers)) + last)
    return 1 - busy * math.exp(-(capacity - rate) * limit_s)


def rate_at(share, capacity, limit_s, servers=1):
    """The rate whose attainment is that share."""
    low, high = 0.0, capacity
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if attainment(middle, capacity, limit_s, servers) >= share else (low, middle)
        )
    return low
