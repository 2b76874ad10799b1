"""Trouble on the way out: what a proxy, a rate limit, a cut network or a dying process makes of an engine's answers.

The engine itself works on, and notices what it would notice: that its client has gone. Seen in front of real pairs:
sglang-router 0.3.2 ends the stream of a killed decode without a finish ("end"), smg 1.13.0 with [DONE] all the same ("done"),
the bare engine's connection is reset ("reset").
"""

from dataclasses import dataclass

from serving.engines.simulated.http import Call, Gone
from serving.engines.simulated.switches import Switches, switch

THEN = ("", "end", "done", "reset", "garbage", "silence")
DONE = b"data: [DONE]\n\n"
GARBAGE = b"data: {oops\n\n"


@dataclass(frozen=True, slots=True)
class Wire(Switches):
    """A wire fault; one that is set replaces the one before. `then`:

    end      the stream ends as if it were whole
    done     with [DONE] first
    reset    the connection breaks
    garbage  one event is no JSON
    silence  nothing more comes, not even the head when no event has passed
    """

    status: int = switch(
        0,
        "Not 0: every generation is answered with this status before it reaches the engine.",
        least=0,
        most=599,
    )
    message: str = switch("refused on the way", "What the body of such an answer says.")
    after_events: int = switch(0, "Events of a stream that pass before `then` happens.", least=0)
    then: str = switch("", f"One of {', '.join(THEN[1:])}, or nothing.", choices=THEN)
    pad_chars: int = switch(
        0, "Each token's text is so much longer, as where a server merges many tokens.", least=0
    )


CLEAR = Wire()


class WiredCall(Call):
    """A call whose answer meets the fault that was on when the call came."""

    _wire: Wire = CLEAR
    _left: int = 0

    def meet(self, wire: Wire) -> None:
        self._wire = wire
        self._left = wire.after_events

    async def json(self, document: object, status: int = 200) -> None:
        """A whole answer: `end` and `done` mean nothing here. Raises Gone."""
        if self._wire.then in ("silence", "reset"):
            await self._break()
        await super().json(document, status)

    async def begin_events(self) -> None:
        """Raises Gone."""
        if self._wire.then == "silence" and not self._left:
            await self._break()
        await super().begin_events()

    async def event(self, data: bytes) -> None:
        """Raises Gone once the fault has ended the answer."""
        if self._wire.then and not self._left:
            await self._break()
        self._left -= 1
        await super().event(data)

    async def _break(self) -> None:
        match self._wire.then:
            case "garbage":
                await super().event(GARBAGE)
                return
            case "done":
                await super().event(DONE)
                await self.end()
            case "end":
                await self.end()
            case "reset":
                self.abort()
                await self.gone()
            case _:
                await self.gone()
        raise Gone
