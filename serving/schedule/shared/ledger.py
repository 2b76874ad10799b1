"""The ledger on its server: one call, one fault."""

import re
from typing import Protocol

from serving.schedule.shared.footing import LIFE
from serving.schedule.shared.script import LEAVE, LIFE_NOW, SCRIPT
from serving.schedule.shared.words import Answer, Ask, answer_of


class LedgerFault(Exception):
    """The server did not answer, or not as a ledger: the message says how, without address or credentials."""


OTHER_LIFE = re.compile(r"LIFE [^:]*: (\d+)")


def other_ttl(theirs_ms: int, ours_ms: int) -> str:
    """What is wrong and what to set, by the lives of grants there and here."""
    theirs, ours = (round(life_ms / 1000 / LIFE, 2) for life_ms in (theirs_ms, ours_ms))
    other = f"another ttl_s, {theirs:g} s, and this one {ours:g} s"
    return f"the other gateways have {other}: set shared.ttl_s = {theirs:g}"


class Ledger(Protocol):
    """Where gateways agree. Used from one event loop, one call at a time."""

    async def renew(self, ask: Ask) -> Answer:
        """Raises LedgerFault."""
        ...

    async def leave(self) -> None:
        """This gateway holds nothing any more. Raises LedgerFault."""
        ...

    async def close(self) -> None:
        """Gives up what runs. Idempotent."""
        ...


class ServerLedger:
    """In a hash of a Valkey or Redis server. Connects when it is first asked, and again after every fault.

    Raises OSError where a file that the URL names cannot be read.
    """

    def __init__(self, url: str, name: str, gateway: str, call_s: float) -> None:
        from serving.redis_client import redis_client

        self._redis = redis_client(url, 1, call_s)
        self._book = f"mm-serving-toolkit:ledger:{name}"
        self._gateway = gateway

    async def renew(self, ask: Ask) -> Answer:
        try:
            told = await self._run(SCRIPT, ask.text())
        except LedgerFault as fault:
            if theirs := OTHER_LIFE.search(str(fault)):
                raise LedgerFault(other_ttl(int(theirs[1]), ask.life_ms)) from fault
            raise
        try:
            return answer_of(told if isinstance(told, bytes) else b"")
        except ValueError as error:
            raise LedgerFault(str(error)) from error

    async def life(self) -> int:
        """Of the gateways that share now, milliseconds; 0 where there is none. Raises LedgerFault."""
        told = await self._run(LIFE_NOW)
        return told if isinstance(told, int) else 0

    async def leave(self) -> None:
        await self._run(LEAVE)

    async def close(self) -> None:
        await self._redis.aclose()

    async def _run(self, script: str, *words: str) -> object:
        from serving.redis_client import told

        try:
            answer: object = await self._redis.eval(script, 1, self._book, self._gateway, *words)
        except (
            Exception
        ) as error:  # the library's own slips are no more a request's business than the server's
            raise LedgerFault(told(error)) from error
        return answer
