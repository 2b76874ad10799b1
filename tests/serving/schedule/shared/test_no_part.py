"""A gateway that has no part of the pools yet says so at once, and one that cannot share is told why before anything starts."""

import asyncio
from pathlib import Path

import orjson
import pytest

from serving.schedule.shared.configured import first_look
from serving.schedule.shared.ledger import LedgerFault, ServerLedger
from serving.schedule.shared.words import Answer, Ask, Said
from serving.shared_config import SharedConfig
from tests.serving.access.valkey import Valkey
from tests.serving.rig import records, rig
from tests.serving.schedule.shared.mini import EACH, PAGES, Mini
from tests.serving.schedule.shared.test_sharing import until
from toolkit.core.errors import EngineUnavailable, UsageFault

NOWHERE = "unix:///nowhere/socket"


def ask(life_ms: int) -> Ask:
    return Ask(life_ms, 0, 1, 0, {}, Said())


async def renew(server: Valkey, gateway: str, life_ms: int) -> Answer:
    ledger = ServerLedger(server.url, "default", gateway, 5.0)
    try:
        return await ledger.renew(ask(life_ms))
    finally:
        await ledger.close()


def test_without_a_right_to_lease_a_request_is_refused_at_once(tmp_path: Path) -> None:
    """With Retry-After, and not after its whole budget; nothing says that this gateway is ready."""

    async def main() -> None:
        async with rig(tmp_path, {"shared": {"url": NOWHERE}}) as service:
            answer = await service.ask()
            assert answer.status == 503
            assert answer.json["error"]["code"] == "no_grant"
            assert int(answer.headers["retry-after"]) >= 3

            status, _, page = service.gateway.status.ready()
            assert (status, orjson.loads(page)["status"]) == (503, "not ready")
            assert service.gateway.admin.state()["gateway"]["ready"] is False

    asyncio.run(main())
    (record,) = records(tmp_path)
    assert record["error_code"] == "no_grant"


def test_another_ttl_is_said_with_what_to_set() -> None:
    """To who starts a gateway, before anything is; and in the words of the log."""

    async def main() -> None:
        with Valkey() as server:
            here = SharedConfig(url=server.url, ttl_s=2.0)
            assert await first_look(here) == ""
            await renew(server, "other", 3750)

            with pytest.raises(
                UsageFault, match=r"another ttl_s, 5 s, and this one 2 s: set shared\.ttl_s = 5"
            ):
                await first_look(here)
            assert await first_look(SharedConfig(url=server.url, ttl_s=5.0)) == ""
            with pytest.raises(
                LedgerFault, match=r"^the other gateways have another ttl_s, 5 s, and this one 2 s"
            ):
                await renew(server, "mine", 1500)

    asyncio.run(main())


def test_a_server_that_is_away_at_the_start_is_told_and_none_is_not_looked_for() -> None:
    assert "unix:///nowhere/socket does not work" in asyncio.run(first_look(SharedConfig(url=NOWHERE)))
    assert asyncio.run(first_look(SharedConfig())) == ""


def test_who_has_a_part_lets_requests_wait_and_who_has_lost_all_right_does_not() -> None:
    """A part that is used up comes back; a right that has ended may not."""

    async def main() -> None:
        with Valkey() as server:
            async with Mini(server.url, 0.5, alone=False) as mini:
                with pytest.raises(EngineUnavailable):
                    mini.sharing.refuse()
                await until(lambda: mini.granted == PAGES)
                mini.offer(2 * PAGES // EACH)
                mini.sharing.refuse()

                server.kill()
                await until(lambda: mini.granted == 0)
                with pytest.raises(EngineUnavailable) as refused:
                    mini.sharing.refuse()
                assert refused.value.code.code == "no_grant"

    asyncio.run(main())
