"""A gateway without its front: the admission, kept within its grants by a real negotiator at a real server.

As a process (`python -m tests.serving.schedule.shared.mini URL TTL_S`) it takes all it can get and prints what it holds.
"""

import asyncio
import random
import sys
import time

from serving.retry_config import RetryConfig
from serving.schedule.admit import Admission
from serving.schedule.lease import Need
from serving.schedule.pool import Report
from serving.schedule.priority import Rules, Treatment
from serving.schedule.retry import Retries
from serving.schedule.shared.configured import negotiator
from serving.service import EngineEndpoint
from serving.shared_config import SharedConfig
from toolkit.core.clock import SystemClock
from toolkit.core.sample import SloClass, WorkloadClass

PAGES = 1000
EACH = 10
WHOLE = Report(PAGES, 1, 1, 0, 0)
DECODE = EngineEndpoint(name="decode-0", role="decode", url="http://d")
WEIGHTS = {SloClass.REALTIME: 4.0, SloClass.STANDARD: 1.0, SloClass.BATCH: 0.25}
RULES = Rules(
    {slo: Treatment(weight=weight) for slo, weight in WEIGHTS.items()},
    max_in_flight=1000,
    max_waiting=1000,
    lease_cap=0.2,
)


class Mini:
    """Requests of EACH pages that stay until they are let go or revoked. Use as an async context."""

    def __init__(
        self, url: str, ttl_s: float, alone: bool = True, decode: EngineEndpoint = DECODE, identity: str = ""
    ) -> None:
        self.admission = Admission(RULES)
        self.admission.serve({"decode-0": 1.0}, 0.0)
        self.renewals: list[str] = []
        self.revoked: list[str] = []
        sharing = negotiator(
            SharedConfig(url=url, ttl_s=ttl_s, alone=alone),
            [decode],
            self.admission,
            Retries(RetryConfig(), random.Random(1)),
            SystemClock(),
            lambda moves: None,
            self._revoke,
            self.renewals.append,
            {"decode-0": identity},
        )
        assert sharing is not None
        self.sharing = sharing
        self.told()
        self._task: asyncio.Task[None] | None = None
        self._made = 0

    async def __aenter__(self) -> "Mini":
        self._task = asyncio.create_task(self.sharing.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self.let_go()
        await self.sharing.close()
        self.admission.check()
        assert self.admission.idle

    @property
    def held(self) -> int:
        return self.admission.leases.pools["decode-0"].leased

    @property
    def granted(self) -> int:
        return self.sharing.state.tokens["decode-0"]

    def told(self, report: Report | None = WHOLE) -> None:
        """What the engine says of its pool."""
        self.admission.told("decode-0", report, time.monotonic())

    def offer(self, requests: int, slo: SloClass = SloClass.STANDARD) -> None:
        """They queue, and enter when there is room."""
        for _ in range(requests):
            self._made += 1
            key, now = f"r{self._made}", time.monotonic()
            self.admission.arrive(key, slo, now, now + 100)
            self.admission.prepared(key, WorkloadClass.TEXT_ONLY, EACH, now, Need(EACH))

    def turn_over(self, requests: int, slo: SloClass) -> None:
        """So many leave, and as many come."""
        for key in [*self.admission.leases.holders][:requests]:
            self.admission.leave(key, time.monotonic())
        self.offer(requests, slo)

    def let_go(self) -> None:
        """All of them leave."""
        for number in range(1, self._made + 1):
            self.admission.leave(f"r{number}", time.monotonic())

    def _revoke(self, keys: list[str]) -> None:
        for key in keys:
            self.revoked.append(key)
            self.admission.leave(key, time.monotonic())


async def greedy(url: str, ttl_s: float) -> None:
    async with Mini(url, ttl_s) as mini:
        mini.offer(PAGES // EACH)
        while True:
            print(mini.held, len(mini.revoked), flush=True)
            await asyncio.sleep(0.02)


if __name__ == "__main__":
    asyncio.run(greedy(sys.argv[1], float(sys.argv[2])))
