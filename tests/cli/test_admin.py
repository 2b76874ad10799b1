"""`toolkit admin` against a real gateway's admin API."""

import asyncio
import json

import pytest
from typer.testing import CliRunner

from serving.server import listen, server_of
from tests.serving.rig import rig, until
from tests.serving.stand_ins import FROZEN
from toolkit.cli import app
from toolkit.cli.admin import LATEST, whose
from toolkit.cli.console import exit_code
from toolkit.core.errors import EnvironmentFault, ToolkitError, UsageFault


class Shell:
    """Runs commands on the run folder of a served gateway, beside its event loop."""

    def __init__(self, run_dir):
        self._run = ["--run", str(run_dir)]

    def now(self, *words):
        return CliRunner().invoke(app, ["admin", *words, *self._run])

    async def __call__(self, *words, code=0):
        done = await asyncio.to_thread(self.now, *words)
        error = done.exception
        assert (exit_code(error) if isinstance(error, ToolkitError) else done.exit_code) == code, error
        return error.message if isinstance(error, ToolkitError) else done.output


def with_shell(tmp_path, scenario, **faults):
    async def run():
        async with rig(tmp_path, **faults) as made:
            listener = listen("127.0.0.1", 0)
            made.gateway.admin.open(listener.getsockname()[1])
            server = server_of(made.gateway.admin.handle)
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            await until(lambda: server.started)
            try:
                await scenario(made, Shell(tmp_path))
            finally:
                server.should_exit = True
                await serving
                listener.close()

    asyncio.run(run())


def test_a_change_is_made_listed_and_undone(tmp_path):
    """The whole round, as an operator types it."""

    async def scenario(made, toolkit):
        told = await toolkit("set", "schedule.max_in_flight=4", "batch.weight=0.5", "--reason", "surge")
        assert "schedule.max_in_flight 64 -> 4, batch.weight 0.25 -> 0.5" in told and "surge" in told
        assert made.gateway.admission.limit == 4
        assert "nothing was changed" in await toolkit("set", "schedule.max_in_flight=4")

        page = await toolkit("state")
        assert "schedule.max_in_flight = 4   (configured: 64)" in page
        assert "decode-0   up, weight 1, 0 requests" in page

        assert "(undo of 1)" in await toolkit("undo", "1")
        whose, *lines = (await toolkit("changes")).splitlines()
        assert whose == f"{made.gateway.admin.state()['gateway']['url']}  {tmp_path.name}"
        assert ["ended by 2" in line for line in lines] == [False, True]
        listed = json.loads(await toolkit("changes", "--json"))["changes"]
        assert [one["kind"] for one in listed] == ["undo", "set"]
        assert json.loads(await toolkit("state", "--json"))["configured"] == {}

    with_shell(tmp_path, scenario)


def test_verbs_say_what_they_do(tmp_path):
    """shed, drain, undrain, weight: each is one change."""

    async def scenario(made, toolkit):
        await toolkit("shed", "batch", "high_res", "--for", "600")
        assert (await made.ask(headers={"x-slo-class": "batch"})).status == 429
        await toolkit("shed", "batch", "--off")
        assert (await made.ask(headers={"x-slo-class": "batch"})).status == 200
        await toolkit("weight", "decode-1", "0.5")
        assert made.gateway.book.instances["decode-1"].weight == 0.5
        assert "decode-1 has no request left" in await toolkit("drain", "decode-1", "--wait", "5")
        assert made.gateway.book.instances["decode-1"].drained
        await toolkit("undrain", "decode-1")
        assert not made.gateway.book.instances["decode-1"].drained

    with_shell(tmp_path, scenario, decode_1={})


def test_draining_waits_for_requests_and_says_what_is_left(tmp_path):
    """So that a script knows when an engine may be stopped."""

    async def scenario(made, toolkit):
        asking = asyncio.create_task(made.ask())
        await until(lambda: made.legs["decode-0"].calls)
        told = await toolkit("drain", "decode-0", "--force", "--wait", "0.2", code=1)
        assert "1 on decode-0" in told
        waiting = asyncio.create_task(toolkit("drain", "decode-0", "--wait", "20"))
        made.legs["decode-0"].set()
        await asyncio.gather(waiting, asking)

    with_shell(tmp_path, scenario, decode_0=FROZEN)


def test_refusals_say_what_to_do_and_end_in_their_exit_codes(tmp_path):
    """2 for what was typed wrong, 1 for what cannot be now."""

    async def scenario(_, toolkit):
        assert "did you mean" in await toolkit("set", "schedule.max_in_flite=4", code=2)
        assert "no change 9" in await toolkit("undo", "9", code=2)
        refused = await toolkit("drain", "decode-0", code=1)
        assert "decode-0 was the last that is up" in refused and "--force" in refused
        assert "decode-0, prefill-0" in await toolkit("drain", "decode-7", code=2)
        for wrong in ("0", "10m"):
            assert "seconds above 0" in await toolkit("shed", "batch", "--for", wrong, code=2)
        assert "KEY=VALUE" in await toolkit("set", "lease.cap", code=2)
        await toolkit("set", "batch.weight=2")
        await toolkit("set", "batch.weight=3")
        assert "3.0 now, not 2.0" in await toolkit("undo", "1", code=1)
        assert "0.25" in await toolkit("undo", "1", "--force")

    with_shell(tmp_path, scenario)


def test_the_service_is_named_and_that_it_is_not_the_newest_one(tmp_path, monkeypatch, capsys):
    """runs/latest may have gone back to an older service when a newer one ended."""
    monkeypatch.chdir(tmp_path)
    older, newer = (tmp_path / "runs" / name for name in ("serve-20260101-100000", "serve-20260101-110000"))
    newer.mkdir(parents=True)
    older.mkdir()
    (tmp_path / "runs" / "latest").symlink_to(older.name)

    assert whose(LATEST, {"gateway_url": "http://g"}) == "http://g  serve-20260101-100000"
    assert "serve-20260101-110000 was started after it" in capsys.readouterr().err


def test_without_a_running_service_it_says_so(tmp_path, monkeypatch):
    """A folder that is none: wrong usage. No service, or one whose gateway is gone: nothing answers."""
    missing = Shell(tmp_path / "nowhere").now("state").exception
    assert isinstance(missing, UsageFault) and "--run" in missing.message

    monkeypatch.chdir(tmp_path)
    none = CliRunner().invoke(app, ["admin", "state"]).exception
    assert isinstance(none, EnvironmentFault) and "no service was started" in none.message
    assert isinstance(Shell(tmp_path).now("state").exception, EnvironmentFault)

    (tmp_path / "admin.json").write_text('{"url": "http://127.0.0.1:9", "token": "0123456789abcdef"}')
    gone = Shell(tmp_path).now("state").exception
    assert isinstance(gone, EnvironmentFault) and "still run" in gone.message


@pytest.mark.parametrize("command", ["state", "set", "shed", "drain", "undrain", "weight", "changes", "undo"])
def test_help_has_an_example(command):
    """One line to copy."""
    told = CliRunner().invoke(app, ["admin", command, "--help"])

    assert told.exit_code == 0
    assert f"Example: toolkit admin {command}" in told.output
