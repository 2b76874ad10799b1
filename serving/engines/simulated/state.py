"""The life of a request in an engine, as a table. An event that its state does not know raises and changes nothing.

prefill  bootstrap -> waiting -> computing -> sending -> done
decode   prealloc -> receiving [-> transferring] -> arrived -> running [<-> retracted] -> done
unified  waiting -> computing -> running -> done
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType


class State(Enum):
    BOOTSTRAP = "bootstrap"  # prefill: decode has no pages for it yet
    WAITING = "waiting"
    COMPUTING = "computing"
    SENDING = "sending"  # prefill: SGLang's inflight queue
    PREALLOC = "prealloc"  # decode: waits for pages
    RECEIVING = "receiving"  # decode: WaitingForInput, under a timeout
    TRANSFERRING = "transferring"  # decode: pages are being written; no timeout looks here
    ARRIVED = "arrived"  # decode: waits for a place in the batch
    RUNNING = "running"
    RETRACTED = "retracted"
    DONE = "done"


class Event(Enum):
    PAIRED = "paired"
    SCHEDULED = "scheduled"
    COMPUTED = "computed"
    ALLOCATED = "allocated"
    STARTED = "started"
    RECEIVED = "received"
    ADMITTED = "admitted"
    RETRACTED = "retracted"
    ENDED = "ended"


_PATHS: Mapping[tuple[State, Event], State] = {
    (State.BOOTSTRAP, Event.PAIRED): State.WAITING,
    (State.WAITING, Event.SCHEDULED): State.COMPUTING,
    (State.COMPUTING, Event.COMPUTED): State.SENDING,
    (State.COMPUTING, Event.ADMITTED): State.RUNNING,
    (State.PREALLOC, Event.ALLOCATED): State.RECEIVING,
    (State.RECEIVING, Event.STARTED): State.TRANSFERRING,
    (State.RECEIVING, Event.RECEIVED): State.ARRIVED,
    (State.TRANSFERRING, Event.RECEIVED): State.ARRIVED,
    (State.ARRIVED, Event.ADMITTED): State.RUNNING,
    (State.RUNNING, Event.RETRACTED): State.RETRACTED,
    (State.RETRACTED, Event.ADMITTED): State.RUNNING,
}
TABLE: Mapping[tuple[State, Event], State] = MappingProxyType(
    {**_PATHS, **{(state, Event.ENDED): State.DONE for state in State if state is not State.DONE}}
)


class IllegalEvent(Exception):
    """The request's state does not know the event."""


@dataclass(slots=True)
class Job:
    """One request inside an engine. Mutated by its scheduler alone.

    answer_tokens: how many tokens the answer has in all; ends_with: the finish reason then. fake: no peer takes part
    (SGLang's FAKE_BOOTSTRAP_HOST 2.2.2.2). due: instant at which its present state times out.
    """

    rid: str
    prompt_tokens: int
    answer_tokens: int
    ends_with: str = "length"
    image_tokens: int = 0
    room: int = 0
    bootstrap: str = ""  # host:port of the prefill's bootstrap server
    fake: bool = False
    state: State = State.WAITING
    made: int = 0  # tokens of the answer so far
    computed: int = 0  # prompt tokens that prefill has done
    session: str | None = None  # prefill: the decode it sends to
    due: float | None = None
    since: float = 0.0  # when it entered its state
    sending_s: float = 0.0
    lasted: dict[State, float] = field(default_factory=dict)

    def on(self, event: Event, now: float) -> None:
        """Raises IllegalEvent."""
        try:
            state = TABLE[self.state, event]
        except KeyError:
            raise IllegalEvent(f"{self.rid}: {event.value} in {self.state.value}") from None
        self.lasted[self.state] = self.lasted.get(self.state, 0.0) + now - self.since
        self.state, self.since, self.due = state, now, None

    @property
    def context(self) -> int:
        """Tokens whose KV it holds."""
        return self.prompt_tokens + self.made
