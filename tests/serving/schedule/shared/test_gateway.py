"""A whole gateway that shares: what its client, its balancer and its operator see."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest

from tests.serving.access.valkey import Valkey
from tests.serving.rig import Rig, records, rig, until
from tests.serving.stand_ins import SILENT


@contextlib.asynccontextmanager
async def sharing(tmp_path: Path, server: Valkey, alone: bool, **faults: object) -> AsyncIterator[Rig]:
    shared = {"shared": {"url": server.url, "ttl_s": 1.0, "alone": alone}}
    async with rig(tmp_path, shared, **faults) as service:
        negotiator = service.gateway.sharing
        assert negotiator is not None
        task = asyncio.create_task(negotiator.run())
        try:
            yield service
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def readiness(service: Rig) -> tuple[int, dict[str, object]]:
    status, _, body = service.gateway.status.ready()
    return status, orjson.loads(body)


@pytest.mark.proof
def test_a_gateway_is_ready_when_it_has_a_part_and_says_which(tmp_path: Path) -> None:
    async def main() -> None:
        with Valkey() as server:
            async with sharing(tmp_path, server, alone=True) as service:
                assert readiness(service)[0] == 503
                await until(lambda: readiness(service)[0] == 200, 20)

                (pool,) = service.gateway.admission.leases.pools.values()
                whole = {"decode-0": pool.pages * pool.page_size}
                assert readiness(service)[1]["shared"] == {
                    "standing": "granted",
                    "gateways": 1,
                    "tokens": whole,
                }
                assert (await service.ask()).status == 200
                service.gateway.status.metrics()
                assert service.metric("toolkit_kv_grant_tokens", decode="decode-0") == whole["decode-0"]
                assert service.metric("toolkit_ledger_standing", standing="granted") == 1
                assert service.metric("toolkit_ledger_up") == 1

    asyncio.run(main())


@pytest.mark.slow
def test_a_request_whose_lease_lapses_ends_with_a_typed_error_at_both_engines(tmp_path: Path) -> None:
    """The server dies, and this gateway is told to use nothing without it."""

    async def main() -> None:
        with Valkey() as server:
            async with sharing(tmp_path, server, alone=False, decode_0=SILENT) as service:
                await until(lambda: readiness(service)[0] == 200, 20)
                asked = asyncio.create_task(service.ask(headers={"x-ttft-budget-ms": "60000"}))
                await until(lambda: len(service.gateway.admission.leases.holders) == 1)
                server.kill()

                answer = await asked
                assert answer.status == 503
                assert answer.json["error"]["code"] == "lease_lapsed"
                assert readiness(service)[0] == 503
                assert not service.gateway.admission.leases.holders
                await until(lambda: all(leg.aborted for leg in service.legs.values()))
        (record,) = records(tmp_path)
        assert record["error_code"] == "lease_lapsed"

    asyncio.run(main())
