"""Decodes images in a process of its own: `python -m serving.access.painter FD NICE DECODER`, at the other end of apart.Painter.

Images go here that are large, or whose decoder's work does not show in the header. The kernel ends this process at
its CPU limit (SIGPROF, in the middle of any C code), refuses it memory beyond its limit, and takes back all of it.
"""

import os
import resource
import signal
import socket
import struct
import sys
from pathlib import Path
from typing import Any, cast

import orjson

from serving.access.decoder import Choice, choose
from serving.access.header import ImageHeader
from serving.access.paint import paint
from toolkit.core.errors import InvalidRequest

LENGTHS = struct.Struct("!II")
"""Before each message: bytes of its JSON head, bytes of what follows."""

_ROOM_BYTES = 64_000_000  # beyond twice the estimate, for the interpreter and what allocators keep


def main(arguments: list[str]) -> int:
    """Serves until the other end closes."""
    channel = socket.socket(fileno=int(arguments[0]))
    os.nice(int(arguments[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is the gateway's to handle
    decoder = cast("Choice", arguments[2])
    choose(decoder)  # its libraries load before an image waits for them
    while True:
        message = receive(channel)
        if message is None:
            return 0
        head, data = message
        try:
            send(channel, *_answer(head, data, decoder))
        except OSError:  # the gateway is gone
            return 0
        del message, data


def send(channel: socket.socket, head: dict[str, Any], body: bytes) -> None:
    """Raises OSError where the other end is gone."""
    packed = orjson.dumps(head)
    channel.sendall(LENGTHS.pack(len(packed), len(body)) + packed)
    channel.sendall(body)


def receive(channel: socket.socket) -> tuple[dict[str, Any], bytes] | None:
    """The next message; None where the other end has closed. Raises OSError (TimeoutError too)."""
    lengths = _exactly(channel, LENGTHS.size)
    if lengths is None:
        return None
    head_bytes, body_bytes = LENGTHS.unpack(lengths)
    head, body = _exactly(channel, head_bytes), _exactly(channel, body_bytes)
    return None if head is None or body is None else (orjson.loads(head), body)


def _exactly(channel: socket.socket, size: int) -> bytes | None:
    pieces, missing = [], size
    while missing:
        piece = channel.recv(missing, socket.MSG_WAITALL)  # as a rule all of it, without a copy
        if not piece:
            return None
        pieces.append(piece)
        missing -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _answer(head: dict[str, Any], data: bytes, decoder: Choice) -> tuple[dict[str, Any], bytes]:
    header = ImageHeader(**head["header"])
    try:
        _limit_memory(2 * head["memory_bytes"] + _ROOM_BYTES)
        signal.setitimer(signal.ITIMER_PROF, head["cpu_s"])
        painted = paint(data, header, tuple(head["target"]), head["handover"], decoder)
    except InvalidRequest as error:
        return {"code": error.code.code, "message": error.message}, b""
    except MemoryError:
        reason = f"the {header.format} image takes far more memory than its header says."
        return {"code": "image_invalid", "message": reason}, b""
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    took = {step: getattr(painted, step) for step in ("decode_s", "resize_s", "encode_s")}
    return took, painted.file


def _limit_memory(growth_bytes: int) -> None:
    """Private writable memory may grow by so much from here on."""
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    data_kb = int(status.split("VmData:")[1].split()[0])
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (data_kb * 1024 + growth_bytes, hard))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
