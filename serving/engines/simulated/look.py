"""One look at an engine, for /v1/loads and the gauges of /metrics. Changes nothing."""

from serving.engines.simulated.decode import DecodeWork
from serving.engines.simulated.effects import Load
from serving.engines.simulated.prefill import PrefillWork
from serving.engines.simulated.shop import Shop
from serving.engines.simulated.state import State


def look(
    shop: Shop, prefill: PrefillWork, decode: DecodeWork, now: float, *, throughput: float, paused: bool
) -> Load:
    """throughput: tokens per second since the look before."""
    seconds, speed = prefill.last_transfer
    waiting = shop.within(State.WAITING, State.ARRIVED)
    return Load(
        at=now,
        running=shop.count(State.RUNNING, State.COMPUTING),
        waiting=len(waiting),
        waiting_tokens=sum(job.prompt_tokens for job in waiting if job.state is State.WAITING),
        used_tokens=shop.pool.used_tokens,
        free_tokens=shop.pool.free_tokens,
        context_tokens=sum(job.context for job in shop.within(State.RUNNING)),
        throughput=throughput,
        bootstrap=shop.count(State.BOOTSTRAP),
        inflight=shop.count(State.SENDING),
        prealloc=shop.count(State.PREALLOC),
        transfer=shop.count(State.RECEIVING, State.TRANSFERRING),
        retracted=shop.count(State.RETRACTED),
        paused=len(shop.jobs) if paused else 0,
        deferred=decode.deferred,
        prefill_tokens=prefill.tokens,
        prefill_busy_s=prefill.busy_s,
        transfer_s=seconds,
        transfer_bytes_per_s=speed,
    )
