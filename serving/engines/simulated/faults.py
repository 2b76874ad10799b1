"""What can be made to go wrong, as data: POST /simulated/faults takes any of these fields, GET shows them all."""

from dataclasses import dataclass

from serving.engines.simulated.switches import Switches, switch
from serving.engines.simulated.wire import CLEAR, Wire


@dataclass(frozen=True, slots=True)
class Faults(Switches):
    """Faults that are on. A request that names some leaves the others as they are."""

    transfer_delay_s: float = switch(0.0, "Added to every KV transfer.", least=0)
    transfer_failure_rate: float = switch(
        0.0, "Share of transfers that fail; each puts its decode on the blacklist.", least=0, most=1
    )
    poll_failure_rate: float = switch(
        0.0,
        "Share of transfers that are taken for failed, as by SGLANG_TEST_DISAGG_FAILURE_PROB: no blacklist.",
        least=0,
        most=1,
    )
    stuck_transferring: bool = switch(
        False, "Transfers begin and never end; a decode's slots stay taken past its own timeout."
    )
    bootstrap_delay_s: float = switch(0.0, "Before the bootstrap server tells prefill of a decode.", least=0)
    freeze: bool = switch(False, "The scheduler stands still: HTTP answers, nothing is computed or moved.")
    slow_factor: float = switch(1.0, "Computing takes so many times longer.", over=0)
    answer_503: bool = switch(False, "Every generation is refused: the request queue is full.")
    starting: bool = switch(False, "GET /ready answers 503, as before the model is loaded.")
    abort_after_tokens: int = switch(
        0, "Not 0: a request is aborted, as by /abort_request, when it has so many tokens.", least=0
    )
    kv_leak_pages_per_request: int = switch(
        0, "Pages that a finished request leaves behind until /flush_cache.", least=0
    )
    wire: Wire = switch(CLEAR, "What becomes of answers on their way out (wire.py).")  # noqa: RUF009 (a field, of frozen values)
    die: bool = switch(False, "The process kills itself (SIGKILL) once it has answered.")
    seed: int = switch(0, "Seed of the random draws; setting it starts them afresh.")
