"""What can be made to go wrong, as data: POST /simulated/faults takes any of these fields, GET shows them all."""

from pydantic import Field

from serving.engines.simulated.wire import CLEAR, Wire
from toolkit.core.config import Section


class Faults(Section):
    """Faults that are on. A request that names some leaves the others as they are."""

    transfer_delay_s: float = Field(0.0, ge=0, description="Added to every KV transfer.")
    transfer_failure_rate: float = Field(
        0.0, ge=0, le=1, description="Share of transfers that fail; each puts its decode on the blacklist."
    )
    stuck_transferring: bool = Field(
        False, description="Transfers begin and never end; a decode's slots stay taken past its own timeout."
    )
    bootstrap_delay_s: float = Field(
        0.0, ge=0, description="Before the bootstrap server tells prefill of a decode."
    )
    freeze: bool = Field(
        False, description="The scheduler stands still: HTTP answers, nothing is computed or moved."
    )
    slow_factor: float = Field(1.0, gt=0, description="Computing takes so many times longer.")
    answer_503: bool = Field(False, description="Every generation is refused: the request queue is full.")
    starting: bool = Field(False, description="GET /ready answers 503, as before the model is loaded.")
    abort_after_tokens: int = Field(
        0, ge=0, description="Not 0: a request is aborted, as by /abort_request, when it has so many tokens."
    )
    kv_leak_pages_per_request: int = Field(
        0, ge=0, description="Pages that a finished request leaves behind until /flush_cache."
    )
    wire: Wire = Field(CLEAR, description="What becomes of answers on their way out (wire.py).")
    die: bool = Field(False, description="The process kills itself (SIGKILL) once it has answered.")
    seed: int = Field(0, description="Seed of the random draws; setting it starts them afresh.")
