"""`toolkit serve`: start (or front) prefill and decode engines and the gateway."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from serving.topology import Plan


def serve(
    config: Annotated[Path | None, typer.Option("--config", "-c", help="A serve.toml; `toolkit config show` prints one.")] = None,
    model: Annotated[str, typer.Option(help="Model folder. Without a GPU, the default is a tiny random model.")] = "",
    prefill: Annotated[str, typer.Option(help="GPU ids of prefill, as 0-3: one instance per --tp ids.")] = "",
    decode: Annotated[str, typer.Option(help="GPU ids of decode, as 4-7.")] = "",
    prefill_count: Annotated[int, typer.Option(help="Prefill instances where there is no GPU; 1 where nothing says otherwise.", show_default=False)] = 0,
    decode_count: Annotated[int, typer.Option(help="Decode instances where there is no GPU; 1 where nothing says otherwise.", show_default=False)] = 0,
    tp: Annotated[int, typer.Option(help="GPUs per instance; 1 where nothing says otherwise.", show_default=False)] = 0,
    transfer: Annotated[str, typer.Option(help="How Mooncake moves the KV cache: tcp or rdma.")] = "",
    ib_device: Annotated[str, typer.Option(help="RDMA devices, as mlx5_0,mlx5_1.")] = "",
    attach_prefill: Annotated[str, typer.Option(help="Prefill engines that run already: URL[?bootstrap_port=8998],...")] = "",
    attach_decode: Annotated[str, typer.Option(help="Decode engines that run already: URL,...")] = "",
    host: Annotated[str, typer.Option(help="Address the gateway binds.")] = "",
    port: Annotated[int | None, typer.Option(help="Port of the gateway; 0: a free one.")] = None,
    assignments: Annotated[list[str] | None, typer.Option("--set", help="Any configuration value, as engine.tp=2. May be repeated.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print every command and its environment; start nothing.")] = False,
    check: Annotated[bool | None, typer.Option("--check/--no-check", help="Only look for mistakes (docs/checks.md), start nothing; exit code 1 on errors. --no-check: start in spite of them.", show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print events (or the dry run) as JSON lines; --check as one document.")] = False,
) -> None:  # fmt: skip
    """Start prefill and decode engines behind the gateway, and stay until Ctrl-C.

    Options given here win over the file; --set wins over both. Everything ends with this process.

    A configuration that would not serve is refused before anything is started; --check says what else is wrong with it.

    Example: toolkit serve --model /models/Qwen2.5-VL-7B --prefill 0-3 --decode 4-7 --tp 2 --transfer rdma --ib-device mlx5_0
    """
    from serving.config import ServeConfig
    from serving.topology import plan
    from toolkit.core.config import load

    engine = {
        "prefill": given(gpus=prefill, count=prefill_count),
        "decode": given(gpus=decode, count=decode_count),
        **given(tp=tp, transfer=transfer, ib_device=ib_device),
        **given(attach_prefill=listed(attach_prefill), attach_decode=listed(attach_decode)),
    }
    gateway = given(host=host) | ({} if port is None else {"port": port})
    overrides = {"model": given(path=model), "engine": engine, "gateway": gateway}
    effective = load(ServeConfig, config, assignments or (), overrides)
    planned = plan(effective, dry=dry_run or bool(check))
    if check:
        from toolkit.cli import checked

        checked.show(planned, as_json=as_json)
    elif dry_run:
        from toolkit.cli.dry_run import show

        show(planned, as_json=as_json)
    else:
        if check is None:
            from toolkit.cli import checked

            checked.refuse(planned)
        run(planned, as_json=as_json)


def run(planned: "Plan", *, as_json: bool) -> None:
    """In the foreground, until a signal."""
    import asyncio
    from datetime import datetime

    from serving.launcher import launch
    from serving.topology import hand_back_latest, new_run_folder
    from toolkit.cli.progress import Progress

    folder = new_run_folder(planned.config.runs_dir, f"{datetime.now().astimezone():%Y%m%d-%H%M%S}")
    with Progress(planned, folder, as_json=as_json) as progress:
        try:
            asyncio.run(launch(planned, folder, progress))
        finally:
            hand_back_latest(folder, progress.was_ready)


def given(**values: Any) -> dict[str, Any]:
    """Only what was said on the command line."""
    return {key: value for key, value in values.items() if value}


def listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
