"""Two scheduler cores joined without I/O: what one puts out reaches the other after `wire_s`, on one made-up clock."""

from dataclasses import dataclass, field

from serving.engines.simulated.effects import (
    Deliver,
    Effect,
    Ended,
    Failed,
    Limits,
    Preallocated,
    Token,
    Withdrawn,
)
from serving.engines.simulated.model import CPU_TINY, Costs
from serving.engines.simulated.scheduler import Scheduler
from serving.engines.simulated.state import Job

SESSION = "decode:1"
LIMITS = Limits(max_total_tokens=4096, reserved_tokens=0)


def job(rid: str, tokens: int = 4, prompt: int = 100, room: int = 1, **fields: object) -> Job:
    made = Job(rid=rid, prompt_tokens=prompt, answer_tokens=tokens, room=room, bootstrap="p:1")
    for name, value in fields.items():
        setattr(made, name, value)
    return made


@dataclass
class Pair:
    """Runs both cores; `heard` is what their clients would hear, by rid."""

    limits: Limits = LIMITS
    costs: Costs = CPU_TINY
    alive: bool = True
    now: float = 0.0
    heard: dict[str, list[Token | Ended | Failed]] = field(default_factory=dict)
    carried: list[Effect] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.prefill = Scheduler("prefill", self.costs, self.limits, 0.0)
        self.decode = Scheduler("decode", self.costs, self.limits, 0.0)

    def ask(self, name: str, tokens: int = 4, prompt: int = 100, room: int = 1) -> None:
        """Both legs."""
        self.prefill.submit(job(f"{name}-p", tokens, prompt, room), self.now)
        self.decode.submit(job(f"{name}-d", tokens, prompt, room), self.now)

    def run(self, until: float) -> None:
        """Let time pass."""
        while True:
            self._exchange()
            due = [at for at in (self.prefill.next_at(), self.decode.next_at()) if at is not None]
            if not due or min(due) > until:
                break
            self.now = max(self.now, min(due))
            self.prefill.advance(self.now)
            self.decode.advance(self.now)
        self.now = until
        self.prefill.advance(until)
        self.decode.advance(until)
        self._exchange()

    def tokens(self, rid: str) -> int:
        return sum(isinstance(one, Token) for one in self.heard.get(rid, []))

    def end(self, rid: str) -> Ended | Failed | None:
        last = self.heard.get(rid, [None])[-1]
        return last if isinstance(last, Ended | Failed) else None

    def check(self) -> None:
        self.prefill.check()
        self.decode.check()

    def _exchange(self) -> None:
        while effects := [*self.prefill.take_effects(), *self.decode.take_effects()]:
            for effect in effects:
                self._carry(effect)

    def _carry(self, effect: Effect) -> None:
        if isinstance(effect, Token | Ended | Failed):
            self.heard.setdefault(effect.rid, []).append(effect)
            return
        self.carried.append(effect)
        if isinstance(effect, Preallocated):
            self.prefill.paired(effect.room, SESSION, self.now)
        elif isinstance(effect, Withdrawn):
            self.prefill.withdrawn(effect.room, self.now)
        elif isinstance(effect, Deliver):
            if self.alive and effect.news == "started":
                self.decode.started(effect.room, self.now)
            elif self.alive and effect.news == "failed":
                self.decode.refused(effect.room, effect.message, self.now)
            elif effect.news == "done":
                if self.alive:
                    self.decode.received(effect.room, self.now)
                self.prefill.delivered(effect.rid, "" if self.alive else "is not alive", self.now)
        else:
            self.prefill.probed(effect.session, self.alive, self.now)
