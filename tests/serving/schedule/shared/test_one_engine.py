"""One engine is one pool, however each gateway writes its URL; where it is not, that is said."""

import asyncio

import pytest

from serving.pool_watch import identity_of
from serving.schedule.shared.configured import common_name
from serving.service import EngineEndpoint
from tests.serving.access.valkey import Valkey
from tests.serving.schedule.shared.mini import PAGES, Mini
from tests.serving.schedule.shared.test_sharing import until


def decode(url: str) -> EngineEndpoint:
    return EngineEndpoint(name="decode-0", role="decode", url=url)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
def test_this_machine_has_one_name(host: str) -> None:
    assert common_name(f"http://{host}:30000") == "http://127.0.0.1:30000"
    assert common_name("http://10.0.0.2:30000") == "http://10.0.0.2:30000"


def test_two_spellings_share_one_pool() -> None:
    async def main() -> None:
        with Valkey() as server:
            async with (
                Mini(server.url, 1.0, decode=decode("http://localhost:1")) as one,
                Mini(server.url, 1.0, decode=decode("http://127.0.0.1:1")) as two,
            ):
                await until(lambda: one.granted > 0 and two.granted > 0)
                assert one.granted + two.granted <= PAGES

    asyncio.run(main())


def test_an_engine_with_another_url_elsewhere_is_told_from_what_it_says_it_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Once in the log, with both URLs; as long as it is so in /readyz and the operator's view."""

    async def main() -> None:
        with Valkey() as server:
            async with Mini(server.url, 1.0, decode=decode("http://a:1"), identity="x") as one:
                await until(lambda: one.sharing.state.told == "works")
                async with Mini(server.url, 1.0, decode=decode("http://b:1"), identity="x") as two:
                    await until(lambda: "by another URL" in one.sharing.state.told)
                    await until(lambda: "by another URL" in two.sharing.state.told)
                await until(lambda: one.sharing.state.told == "works")

    asyncio.run(main())
    assert "http://a:1 here is http://b:1 at another gateway" in caplog.text


def test_what_an_engine_is_changes_with_each_start_and_is_not_guessed() -> None:
    start = {"port": 1, "random_seed": 7, "startup_time": {"load_weight": 1.25, "scheduler_e2e": 4.5}}

    assert identity_of(start) == identity_of({**start, "internal_states": [{"load": 3}]})
    assert identity_of(start) != identity_of({**start, "startup_time": {"load_weight": 1.5}})
    assert identity_of({"port": 1, "random_seed": 7}) == ""
