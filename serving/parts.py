"""What the handling of one request works with."""

from collections.abc import Callable
from dataclasses import dataclass

from serving.access.prepare import Access
from serving.access.room import Room
from serving.answer import Answerer
from serving.attempt import Limits
from serving.config import ServeConfig
from serving.fallback import Fallback
from serving.keys import Keys
from serving.recording import Recording
from serving.result import Result
from serving.schedule.admit import Admission
from serving.spending import Spending
from serving.tokenizer.counting import TextCounter
from toolkit.core.clock import Clock
from toolkit.core.sample import Sample

SLOWEST_TOKENS_PER_S = 2.0
"""A non-streamed answer that comes slower than this after its prefill is taken for stuck."""

OnSample = Callable[[Sample, list[float]], None]
KeepResult = Callable[[Result, Sample], None]


@dataclass(frozen=True, slots=True)
class Parts:
    """Owned by the gateway; another configuration makes another value of it."""

    config: ServeConfig
    model: str
    vocabulary: int | None  # size, where the model's folder tells it
    tokens: TextCounter
    access: Access
    bodies: Room
    admission: Admission
    answerer: Answerer
    keys: Keys
    clock: Clock
    on_sample: OnSample
    spending: Spending
    fallback: Fallback
    keep_result: KeepResult | None = None
    own_key: str = ""  # of Service

    def limits(self, recording: Recording) -> Limits:
        """How long an attempt at the request may take."""
        config = self.config
        whole_s = min(
            config.answer_timeout_s, config.stream_stall_s + recording.max_tokens / SLOWEST_TOKENS_PER_S
        )
        least_s = self.spending.lacking_s(recording, "wait")
        return Limits(recording.deadline, config.stream_stall_s, whole_s, least_s)
