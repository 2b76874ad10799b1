"""The admin API over a whole gateway: who may ask, what it answers, and that what it changes is what requests meet."""

import asyncio
import stat

import pytest

from serving.admin_config import AdminConfig
from tests.serving.fake_exchange import FakeExchange
from tests.serving.rig import chat, rig, until
from tests.serving.stand_ins import FROZEN
from toolkit.core.admin import Door

LIMIT = "schedule.max_in_flight"


class Caller:
    """Someone with the service's token."""

    def __init__(self, made):
        made.gateway.admin.open(1)
        self.admin = made.gateway.admin
        self.door = Door.read(made.run_dir)

    async def ask(self, method, path, body=b"", token=None):
        headers = {"authorization": f"Bearer {self.door.token if token is None else token}"}
        exchange = FakeExchange(body, method=method, path=f"/admin/v1{path}", headers=headers)
        await self.admin.handle(exchange)
        return exchange

    async def set(self, values, **fields):
        return await self.ask("POST", "/changes", {"set": values, **fields})

    async def state(self):
        return (await self.ask("GET", "/state")).json


def with_caller(tmp_path, scenario, **options):
    async def run():
        async with rig(tmp_path, **options) as made:
            await scenario(made, Caller(made))

    asyncio.run(run())


def test_only_who_holds_the_token_is_answered(tmp_path):
    """401 for all others, on every path; the token lies where its owner alone can read it."""

    async def scenario(made, caller):
        for token in ("", "wrong" * 8, caller.door.token[:-1]):
            for method, path in (("GET", "/state"), ("POST", "/changes"), ("GET", "/nowhere")):
                refused = await caller.ask(method, path, token=token)
                assert (refused.status, refused.json["error"]["code"]) == (401, "unauthorized")
                assert "admin.json" in refused.json["error"]["action"]
        assert stat.S_IMODE((made.run_dir / "admin.json").stat().st_mode) == 0o600
        assert len(caller.door.token) >= 32
        again = Caller(made)
        assert again.door.token == caller.door.token, "a gateway that starts again keeps the token"

    with_caller(tmp_path, scenario)


def test_changes_bear_the_names_of_a_tokens_file(tmp_path):
    """Where several may change a service, it is written down who did."""
    tokens = tmp_path / "tokens.toml"
    tokens.write_text('ann = "ann-token-of-16-characters"\nbob = "bob-token-of-16-characters"\n')

    async def scenario(_, caller):
        assert caller.door.token == ""
        answer = await caller.ask(
            "POST", "/changes", {"set": {LIMIT: 3}, "reason": "too hot"}, "bob-token-of-16-characters"
        )
        change = answer.json["change"]
        assert (change["who"], change["reason"]) == ("bob", "too hot")

    with_caller(tmp_path, scenario, settings={"admin": {"tokens_file": str(tokens)}})


def test_without_named_tokens_it_cannot_be_opened_to_other_machines():
    """The service's own token can be read on its own machine only."""
    with pytest.raises(ValueError, match="tokens_file"):
        AdminConfig(host="0.0.0.0")
    assert AdminConfig(host="0.0.0.0", tokens_file="x").host == "0.0.0.0"


def test_state_tells_what_is_so_and_what_can_be_changed(tmp_path):
    """One page for people and runbooks."""

    async def scenario(_, caller):
        await caller.set({LIMIT: 3, "instance.decode-0.weight": 2})
        state = await caller.state()
        assert state["gateway"]["in_flight_limit"] == 3
        assert state["gateway"]["ready"] is True
        assert state["settings"][LIMIT] == 3
        assert state["configured"] == {LIMIT: 64, "instance.decode-0.weight": 1.0}
        assert state["revision"] == 1
        decode = next(one for one in state["instances"] if one["name"] == "decode-0")
        assert (decode["up"], decode["drained"], decode["weight"]) == (True, False, 2.0)
        assert [pair["serves"] for pair in state["pairs"]] == [True]
        assert [(one["decode"], one["tokens"], one["most"]) for one in state["kv"]["pools"]] == [
            ("decode-0", 32768, 4915)
        ]
        assert state["kv"]["binding"] and state["kv"]["leases"] == []

    with_caller(tmp_path, scenario)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "invalid_json"),
        (b"[]", 400, "invalid_json"),
        (b"", 400, "invalid_request"),
        (b'{"set": {}}', 400, "invalid_request"),
        (b'{"set": {"batch.weight": 2, "x.y": 1}}', 400, "invalid_request"),
        (b'{"set": {"batch.weight": -2}}', 400, "invalid_request"),
        (b'{"set": {"batch.weight": 2}, "for": 3}', 400, "invalid_request"),
        (b'{"set": {"batch.weight": 2}, "for_s": 0}', 400, "invalid_request"),
        (b'{"set": {"instance.decode-0.drained": true}}', 409, "nothing_left_to_serve"),
        (b" " * 200_000, 413, "body_too_large"),
    ],
)
def test_a_wrong_change_is_told_by_a_typed_error_and_changes_nothing(tmp_path, body, status, code):
    """All of it or nothing."""

    async def scenario(_, caller):
        answer = await caller.ask("POST", "/changes", body)
        assert (answer.status, answer.json["error"]["code"]) == (status, code)
        state = await caller.state()
        assert (state["revision"], state["configured"]) == (0, {})

    with_caller(tmp_path, scenario)


ODD = [b"null", b'"x"', b"[]", b"{}", b"-1", b"0", b"1e308", b"1e30"]


@pytest.mark.slow
def test_no_value_of_any_setting_breaks_the_gateway(tmp_path):
    """It is taken, and can be undone, or refused with 400; requests are answered in either case."""

    async def scenario(made, caller):
        state = await caller.state()
        for key in state["settings"]:
            for value in ODD:
                answer = await caller.ask(
                    "POST", "/changes", b'{"force":true,"set":{"%b":%b}}' % (key.encode(), value)
                )
                assert answer.status in (200, 400), (key, value, answer.text)
                if answer.status == 200 and answer.json["change"]:
                    undone = await caller.ask(
                        "POST", f"/changes/{answer.json['change']['id']}/undo", {"force": True}
                    )
                    assert undone.status == 200, (key, value, undone.text)
        assert (await caller.state())["configured"] == {}
        assert (await made.ask()).status == 200

    with_caller(tmp_path, scenario)


def test_the_public_listener_knows_nothing_of_it(tmp_path):
    """404, with a token too: no wrong line of a proxy's configuration can publish it."""

    async def scenario(made, caller):
        token = {"authorization": f"Bearer {caller.door.token}"}
        answer = await made.ask(b"", method="GET", path="/admin/v1/state", headers=token)
        assert answer.status == 404

    with_caller(tmp_path, scenario)


def test_wrong_paths_and_methods_are_told(tmp_path):
    """404 and 405."""

    async def scenario(_, caller):
        for method, path, status in (
            ("GET", "/nothing", 404),
            ("POST", "/changes/9/undo", 404),
            ("DELETE", "/changes", 405),
            ("GET", "/changes/1/undo", 405),
            ("POST", "/state", 405),
        ):
            assert (await caller.ask(method, path)).status == status

    with_caller(tmp_path, scenario)


def test_changes_are_listed_newest_first_and_undone_by_number(tmp_path):
    """The whole story of a service, and the way back."""

    async def scenario(made, caller):
        await caller.set({LIMIT: 3}, reason="one")
        await caller.set({LIMIT: 2}, reason="two")
        conflict = await caller.ask("POST", "/changes/1/undo")
        assert (conflict.status, conflict.json["error"]["code"]) == (409, "change_conflict")
        assert (await caller.ask("POST", "/changes/2/undo", {"reason": "back"})).status == 200

        listed = (await caller.ask("GET", "/changes")).json["changes"]
        assert [(one["id"], one["kind"], one["reason"]) for one in listed] == [
            (3, "undo", "back"),
            (2, "set", "two"),
            (1, "set", "one"),
        ]
        assert made.gateway.admission.limit == 3
        assert made.metric("toolkit_admin_changes_total", kind="set") == 2
        assert made.metric("toolkit_admin_overridden") == 1

    with_caller(tmp_path, scenario)


def test_a_shed_class_gets_429_and_the_others_are_answered(tmp_path):
    """By SLO class at once, by workload class when it is known; both say when to come back."""

    async def scenario(made, caller):
        await caller.set({"shed.batch": True, "shed.retry_after_s": 30})
        batch = await made.ask(headers={"x-slo-class": "batch"})
        assert (batch.status, batch.json["error"]["code"], batch.headers["retry-after"]) == (
            429,
            "shed",
            "30",
        )
        assert (await made.ask()).status == 200

        await caller.set({"shed.batch": False, "shed.text_only": True})
        assert (await made.ask()).status == 429
        assert made.metric("toolkit_errors_total", code="shed", hop="body") >= 1

    with_caller(tmp_path, scenario)


def test_a_change_that_contradicts_the_rest_is_made_with_the_warning_of_a_check(tmp_path):
    """The same rules as of `toolkit serve --check`; what was so before is not told again."""

    async def scenario(_, caller):
        async def warned(values):
            return [told.split(":")[0] for told in (await caller.set(values)).json["warnings"]]

        assert await warned({"schedule.min_in_flight": 100}) == ["in-flight-bounds"]
        assert await warned({"batch.short_wait_s": 500}) == ["due-too-late"]
        assert await warned({"shed.realtime": True, "shed.standard": True}) == []
        assert await warned({"shed.batch": True}) == ["sheds-everybody"]
        assert await warned({"shed.batch": True, "batch.weight": 2}) == []

    with_caller(tmp_path, scenario)


def test_a_promise_can_be_changed_for_requests_to_come(tmp_path):
    """The budget of an SLO class is read when a request arrives."""

    async def scenario(made, caller):
        await caller.set({"standard.ttft_budget_s": 0.1})
        late = await made.ask()
        assert (late.status, late.json["error"]["code"]) == (504, "ttft_budget_exceeded")

    with_caller(tmp_path, scenario, prefill_0=FROZEN)


def test_the_cap_on_kv_and_what_may_be_given_up_are_changed_for_requests_to_come(tmp_path):
    """Over the cap: 413; where its class may be degraded: fewer tokens, and the answer says so."""

    async def scenario(made, caller):
        await made.gateway.kv.look()
        await caller.set({"lease.cap": 0.001})
        refused = await made.ask(chat(max_tokens=4000))
        assert (refused.status, refused.json["error"]["code"]) == (413, "kv_lease_exceeded")

        await caller.set({"standard.degrade": True, "standard.degrade_max_tokens": 1})
        lighter = await made.ask(chat(max_tokens=4000))
        assert lighter.status == 200
        assert "max_tokens" in lighter.headers["x-toolkit-degraded"]

        for number in (2, 1):
            await caller.ask("POST", f"/changes/{number}/undo")
        whole = await made.ask(chat(max_tokens=4000))
        assert whole.status == 200 and "x-toolkit-degraded" not in whole.headers

    with_caller(tmp_path, scenario)


@pytest.mark.parametrize("leases", [False, True])
def test_a_drained_decode_gets_nothing_new_and_ends_what_it_has(tmp_path, leases):
    """What `toolkit admin drain` waits for: no request on it. Who waits for KV there goes elsewhere."""

    async def scenario(made, caller):
        if leases:
            await made.gateway.kv.look()
            assert made.gateway.admission.leases.pools
        made.legs["decode-1"].set(**FROZEN)
        made.legs["decode-0"].set(**FROZEN)
        before = asyncio.create_task(made.ask())
        await until(lambda: any(leg.calls for name, leg in made.legs.items() if name.startswith("decode")))
        busy = next(name for name, leg in made.legs.items() if name.startswith("decode") and leg.calls)
        other = {"decode-0": "decode-1", "decode-1": "decode-0"}[busy]
        await caller.set({f"instance.{busy}.drained": True})
        for leg in made.legs.values():
            leg.set()

        answers = [await made.ask() for _ in range(6)]

        assert {answer.status for answer in answers} == {200}
        assert len(made.legs[other].calls) == 6
        assert (await before).status == 200
        assert len(made.legs[busy].calls) == 1

    with_caller(tmp_path, scenario, decode_1={})


def test_a_drain_for_a_while_tells_clients_when_it_ends(tmp_path):
    """Also when the time was prolonged, and in another process of the same run folder."""

    async def first(made, caller):
        await caller.set({"instance.decode-0.drained": True}, for_s=20, force=True)
        await caller.set({"instance.decode-0.drained": True}, for_s=600, force=True)
        answer = await made.ask()
        assert answer.status == 503
        assert 590 < int(answer.headers["retry-after"]) <= 600
        assert "the operator took engines out" in answer.json["error"]["message"]
        assert [pool["served"] for pool in (await caller.state())["pools"]] == [False]

    async def second(made, _):
        assert int((await made.ask()).headers["retry-after"]) > 590

    with_caller(tmp_path, first)
    with_caller(tmp_path, second)


def test_what_was_changed_holds_again_when_the_gateway_starts_again(tmp_path):
    """A gateway that dies does not give work to a decode that somebody took out."""

    async def first(_, caller):
        await caller.set({"instance.decode-1.drained": True, LIMIT: 3})

    async def second(made, _):
        assert made.gateway.book.instances["decode-1"].drained
        assert made.gateway.admission.limit == 3

    with_caller(tmp_path, first, decode_1={})
    with_caller(tmp_path, second, decode_1={})


def test_the_state_tells_how_stores_stand(tmp_path):
    """Those that requests go on without."""

    async def scenario(made, caller):
        await until(lambda: made.gateway.status.stores() == {"object store": "works"})
        assert (await caller.state())["stores"] == {"object store": "works"}

    store = {"url": f"file://{tmp_path}/store", "images": True, "spool_dir": str(tmp_path / "spool")}
    with_caller(tmp_path, scenario, settings={"storage": store})
