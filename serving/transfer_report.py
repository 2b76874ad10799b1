"""A transfer benchmark as a table and plain lines."""

from collections.abc import Mapping

from serving.transfer_plan import size_name
from serving.transfer_result import EDGES_S, GB, KvTime, Measured, Report
from toolkit.core.slo import Quantile

COLUMNS = ("block", "batch", "transfers", "p50 ms", "p95 ms", "p99 ms", "GB/s", "CPU out", "CPU in")
PER_STREAM = "MB/s each"
NOTE = (
    "A transfer is one call of the initiator: `batch` blocks. CPU: seconds per GB, of the initiator and of the target.\n"
    ">= is a lower bound (99 % confidence): too few samples for a value (p50 needs 11, p95 130, p99 662); ~ is the plain\n"
    "estimate where there are too few even for a bound."
)


def table(report: Report) -> list[str]:
    """Lines of right-aligned columns."""
    streams = report.plan.streams
    rows = [
        COLUMNS if streams == 1 else (*COLUMNS, PER_STREAM),
        *(cells(one, streams) for one in report.cells),
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


def cells(one: Measured, streams: int) -> tuple[str, ...]:
    """One cell for each of COLUMNS, and of PER_STREAM where there are several."""
    alone = (
        size_name(one.size_bytes),
        str(one.batch),
        str(one.transfers),
        *(milliseconds(level) for level in (one.p50, one.p95, one.p99)),
        plain(one.bytes_per_s / GB),
        plain(one.cpu_s_per_gb(one.cpu_initiator_s)),
        plain(one.cpu_s_per_gb(one.cpu_target_s)),
    )
    return alone if streams == 1 else (*alone, plain(one.bytes_per_s / 1e6 / streams))


def plain(value: float) -> str:
    """Three digits that count, no exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}" if value >= 0.001 else f"{value:.5f}"


def milliseconds(level: Quantile) -> str:
    """A value where it is firm, else the bound, else the marked estimate."""
    if level.firm:
        return plain(level.estimate * 1e3)
    return f"~{plain(level.estimate * 1e3)}" if level.lower is None else f">= {plain(level.lower * 1e3)}"


def headline(report: Report) -> str:
    plan = report.plan
    device = f" on {plan.device}" if plan.device else ""
    streams = "1 stream" if plan.streams == 1 else f"{plan.streams} streams"
    return (
        f"Mooncake TransferEngine ({report.mooncake}), {plan.protocol}{device} ({plan.why}), P2P handshake, to {report.peer}\n"
        f"two processes, {streams}, {plan.seconds:g} s a size; each end holds a buffer of {size_name(plan.buffer_bytes)}"
    )


def remarks(report: Report) -> list[str]:
    """What the table does not say."""
    plan = report.plan
    lines = [
        NOTE,
        "All bytes arrived: the target compared each block's number and the checksum of what was written.",
    ]
    if report.load > report.cores:
        lines.append(
            f"This machine was busy: a load of {report.load:.1f} on {report.cores} cores when it began. Read times as upper bounds."
        )
    if plan.too_large:
        named = ", ".join(f"{one.batch} x {size_name(one.size_bytes)}" for one in plan.too_large)
        lines.append(f"Not run: {named} (does not fit the buffer; see --buffer).")
    lines += ["", *kv_lines(report)]
    return [*lines, "", f"environment: {settings(report.environment)}"]


def kv_lines(report: Report) -> list[str]:
    edges = " and ".join(f"{edge * 1e3:g}" for edge in EDGES_S)
    return [
        f"KV of a request = layers * kv_heads * head_dim * 2 * bytes * tokens, at the best rate above, within {edges} ms:",
        *(kv_line(one) for one in report.kv),
    ]


def kv_line(one: KvTime) -> str:
    shape = one.shape
    formula = f"{shape.layers}*{shape.kv_heads}*{shape.head_dim}*2*{shape.bytes_per_value}*{shape.tokens}"
    verdicts = ", ".join(
        f"{edge * 1e3:g} ms {'yes' if passed else f'no (needs {need / GB:.3g} GB/s)'}"
        for edge, passed, need in zip(EDGES_S, one.passes, one.needed_bytes_per_s, strict=True)
    )
    return f"  {shape.name}, {shape.tokens} tokens: {formula} = {shape.bytes / 1e6:.3g} MB, at least {one.seconds * 1e3:.3g} ms: {verdicts}"


def settings(environment: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in sorted(environment.items()))
