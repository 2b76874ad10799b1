"""`toolkit bench transfer`: Mooncake's TransferEngine between two processes."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from serving.transfer_result import Report


def transfer(
    protocol: Annotated[str, typer.Option(help="tcp, rdma, or auto: rdma where /sys/class/infiniband has a device.")] = "auto",
    device: Annotated[str, typer.Option(help="RDMA device, as mlx5_0. Default: Mooncake chooses.")] = "",
    sizes: Annotated[str, typer.Option(help="Block sizes; K, M and G are powers of 1024.")] = "4K,64K,1M,16M,64M",
    batch: Annotated[str, typer.Option(help="Blocks per call.")] = "1,16",
    seconds: Annotated[float, typer.Option("--seconds-per-size", help="Seconds each combination is measured.")] = 2.0,
    streams: Annotated[int, typer.Option(help="Threads of the initiator that transfer at once.")] = 1,
    buffer: Annotated[str, typer.Option(help="Buffer of each of the two processes; what does not fit is not run.")] = "256M",
    stall: Annotated[float, typer.Option(min=1, max=600, help="Seconds after which a transfer counts as hung.")] = 10.0,
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Be the target for one --peer of another machine, then end. Whoever reaches the address can write into the buffer.")] = "",
    peer: Annotated[str, typer.Option(metavar="HOST:PORT", help="Write to the target that listens there, instead of one started here.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print transfer.json instead of the table.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder to keep transfer.json, every latency and the logs in.")] = None,
) -> None:  # fmt: skip
    """Measure the real Mooncake TransferEngine between two processes: latency, GB/s and CPU by block size, bytes verified.

    Needs the engine environment, not a running service. Exit codes: 0 measured, 1 a transfer failed or hung, 2 wrong
    usage, 3 the engine environment is missing, 130 interrupted.

    Example: toolkit bench transfer --sizes 1M,16M --seconds-per-size 1
    """
    import asyncio
    import json
    import os
    import tempfile

    from serving import transfer_run
    from serving.config import EngineConfig
    from serving.topology import engine_python
    from serving.transfer_plan import parse_address, parse_buffer, plan

    chosen = plan(
        sizes, batch, protocol, transfer_run.ib_devices(),
        device=device, seconds=seconds, streams=streams, stall_s=stall, buffer_bytes=parse_buffer(buffer),
    )  # fmt: skip
    python = engine_python(EngineConfig(), dry=False)
    if peer:
        parse_address(peer, "--peer")
    with tempfile.TemporaryDirectory(prefix="toolkit-transfer-") as temporary:
        folder = out or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if listen:
            host, port = parse_address(listen, "--listen")
            asyncio.run(transfer_run.listen(chosen, python, folder, host, port, _listening))
            return
        report = asyncio.run(transfer_run.run(chosen, python, folder, peer, _measuring))
        document = json.dumps(report.to_dict(), indent=2) + "\n"
        if out is not None:
            (out / "transfer.json").write_text(document, encoding="utf-8")
    if as_json:
        sys.stdout.write(document)
    else:
        _print(report)
        if out is not None:
            typer.echo(f"\nfolder: {os.fspath(out)}")


def _listening(word: str) -> None:
    waiting = f"listening; at the other machine: toolkit bench transfer --peer {word}"
    typer.echo("a peer is measuring" if word == "peer" else waiting, err=True)


def _measuring(cell: str) -> None:
    if sys.stderr.isatty():
        typer.echo(f"measuring {cell}", err=True)


def _print(report: "Report") -> None:
    from serving.transfer_report import headline, remarks, table

    typer.echo("\n".join((headline(report), "", *table(report), "", *remarks(report))))
