"""One end of a measured transfer, on the real Mooncake TransferEngine as SGLang uses it.

    python -I agent.py target    --told FILE --host ADDRESS [--port P] [--buffer BYTES] [--protocol tcp|rdma] [--device D]
    python -I agent.py initiator --told FILE --peer HOST:PORT --cells '[[4096, 1], ...]' [--seconds S] [--streams N] ...

The target registers a buffer; the initiator writes blocks into it (transfer_sync_write, or batch_transfer_sync_write for
a batch), with P2PHANDSHAKE as metadata and HOST:RPC_PORT as the session, as SGLang 0.5.23's
distributed/device_communicators/mooncake_transfer_engine.py does. Beside it the initiator asks the target over a TCP
connection of its own (one JSON object a line): what it registered, to clear, whether the last blocks are there, the
checksums of what arrived, its CPU time.

What a figure is about: every transfer first writes its number into the first and last bytes of each of its blocks. The
clock of a cell stops when the target has seen the numbers of the last transfers (a write that returns before its bytes
are there costs the difference), and the checksums of all that was written must be equal.

FILE gets one JSON object a line: ready, begin, cell, failed. A transfer that does not return within --stall seconds ends
the process. It runs in the engine environment, so it uses the standard library and Mooncake only.
"""

import argparse
import ctypes
import importlib
import json
import mmap
import os
import socket
import struct
import sys
import threading
import time
import zlib
from importlib.metadata import distributions
from typing import Any, NoReturn

DEFAULT_BUFFER = 256 << 20
MOST_SLOTS = 64  # places that a stream writes by turns, so that not one block sits in a cache
MOST_TRANSFERS = 200_000  # of one cell: bounds what is kept of it
LATE_PATIENCE_S = 2.0
LINE_BYTES = 1 << 20
STAMP, EDGE = struct.Struct("<QQ"), struct.Struct("<Q")
FAILED = 1


class Failure(Exception):
    """Ends this process with an event `failed`. kind: engine, transfer, stalled, peer, bytes."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Told:
    """The file that the launcher reads."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def __call__(self, event: str, **fields: Any) -> None:
        os.write(self._fd, json.dumps({"event": event, **fields}).encode() + b"\n")


class Engine:
    """A TransferEngine with one registered buffer of this process."""

    def __init__(self, host: str, protocol: str, device: str, size: int) -> None:
        self._engine: Any = importlib.import_module("mooncake.engine").TransferEngine()
        code = self._engine.initialize(host, "P2PHANDSHAKE", protocol, device)
        if code != 0:
            raise Failure(
                "engine", f"TransferEngine.initialize({host!r}, {protocol!r}, {device!r}) gave {code}"
            )
        self.memory = mmap.mmap(-1, size)
        self._pin = (ctypes.c_char * size).from_buffer(self.memory)
        self.address = ctypes.addressof(self._pin)
        code = self._engine.register_memory(self.address, size)
        if code != 0:
            raise Failure("engine", f"register_memory of {size} bytes gave {code}")
        self.session = f"{f'[{host}]' if ':' in host else host}:{self._engine.get_rpc_port()}"

    def write(self, session: str, offsets: list[int], peer: int, size: int) -> int:
        """Blocks of `size` from here to the same offsets there; 0 when done. Releases the interpreter meanwhile."""
        own = [self.address + offset for offset in offsets]
        there = [peer + offset for offset in offsets]
        if len(offsets) == 1:
            return int(self._engine.transfer_sync_write(session, own[0], there[0], size))
        return int(self._engine.batch_transfer_sync_write(session, own, there, [size] * len(offsets)))

    def crc(self, offset: int, length: int) -> int:
        with memoryview(self.memory) as view:
            return zlib.crc32(view[offset : offset + length])


def mooncake_version() -> str:
    """As installed: the distribution is named by its build (-non-cuda, -cuda13, none)."""
    for one in distributions():
        if one.name.startswith("mooncake-transfer-engine"):
            return f"{one.name} {one.version}"
    return "unknown"


class Target:
    """Answers one initiator's questions about the buffer."""

    def __init__(self, engine: Engine, protocol: str) -> None:
        self._engine, self._protocol = engine, protocol

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        op = question["op"]
        if op == "hello":
            return {
                "session": self._engine.session,
                "address": self._engine.address,
                "buffer": len(self._engine.memory),
                "protocol": self._protocol,
                "mooncake": mooncake_version(),
            }
        if op == "clear":
            length = min(int(question["length"]), len(self._engine.memory))
            ctypes.memset(self._engine.address, 0, length)
            return {"cpu_s": time.process_time()}
        if op == "settle":
            return {"missing": self._settle(question["edges"]), "cpu_s": time.process_time()}
        if op == "check":
            return {"crc": [self._engine.crc(int(at), int(length)) for at, length in question["slots"]]}
        raise Failure("peer", f"the initiator asks {op!r}: another version of the toolkit?")

    def _settle(self, edges: list[list[int]]) -> int:
        """How many of the (offset, number) are not there after LATE_PATIENCE_S; looks without a pause."""
        until = time.monotonic() + LATE_PATIENCE_S
        while True:
            edges = [one for one in edges if EDGE.unpack_from(self._engine.memory, one[0])[0] != one[1]]
            if not edges or time.monotonic() > until:
                return len(edges)

    def serve(self, connection: socket.socket) -> None:
        """Until the initiator closes. A silence longer than it announced raises TimeoutError."""
        with connection.makefile("rwb") as wire:
            while line := wire.readline(LINE_BYTES):
                question = json.loads(line)
                if question["op"] == "hello":
                    connection.settimeout(float(question["patience_s"]))
                wire.write(json.dumps(self.answer(question)).encode() + b"\n")
                wire.flush()


class Peer:
    """The target, as the initiator asks it."""

    def __init__(self, address: str, patience_s: float, stall_s: float) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host.strip("[]"), int(port)), timeout=stall_s)
        self._socket.settimeout(stall_s + LATE_PATIENCE_S)
        self._wire = self._socket.makefile("rwb")
        self.own_host: str = self._socket.getsockname()[0]
        self.hello = self.ask("hello", patience_s=patience_s)

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        self._wire.write(json.dumps({"op": op, **fields}).encode() + b"\n")
        self._wire.flush()
        line = self._wire.readline(LINE_BYTES)
        if not line:
            raise Failure("peer", f"the target closed the connection when asked to {op}")
        answer: dict[str, Any] = json.loads(line)
        return answer


class Stream:
    """One thread's transfers, each into the next of its places."""

    def __init__(self, engine: Engine, peer: Peer, base: int, room: int, size: int, batch: int) -> None:
        self._engine, self._peer, self._base = engine, peer, base
        self._size, self._batch = size, batch
        self._slots = min(MOST_SLOTS, room // (size * batch))
        self.latencies_s: list[float] = []
        self.written: dict[int, int] = {}  # offset of a place -> number of the last transfer into it
        self.failure: Failure | None = None
        self._number = 0

    @property
    def length(self) -> int:
        return self._size * self._batch

    def once(self) -> float:
        """One transfer; its seconds. Raises Failure."""
        place = self._base + (self._number % self._slots) * self.length
        self._number += 1
        offsets = [place + block * self._size for block in range(self._batch)]
        for offset in offsets:
            STAMP.pack_into(self._engine.memory, offset, self._number, offset)
            EDGE.pack_into(self._engine.memory, offset + self._size - EDGE.size, self._number)
        begun = time.perf_counter()
        code = self._engine.write(
            self._peer.hello["session"], offsets, self._peer.hello["address"], self._size
        )
        took = time.perf_counter() - begun
        if code != 0:
            raise Failure(
                "transfer", f"Mooncake gave {code} for {self._batch} x {self._size} bytes after {took:.1f} s"
            )
        self.written[place] = self._number
        return took

    def run(self, until: float) -> None:
        """At least one transfer, and on until then (monotonic seconds)."""
        self.written.clear()
        self.latencies_s.clear()
        try:
            while not self.latencies_s or (
                time.monotonic() < until and len(self.latencies_s) < MOST_TRANSFERS
            ):
                self.latencies_s.append(self.once())
        except Failure as failure:
            self.failure = failure

    def edges(self) -> list[tuple[int, int]]:
        """Where the last bytes of every place are, with the number they must hold."""
        last = [(block + 1) * self._size - EDGE.size for block in range(self._batch)]
        return [(place + at, number) for place, number in self.written.items() for at in last]


def run(group: list[Stream], seconds: float, stall_s: float) -> None:
    """All streams for so long, a thread each. Raises Failure; one that does not return may be in Mooncake for ever."""
    until = time.monotonic() + seconds
    threads = [threading.Thread(target=one.run, args=(until,), daemon=True) for one in group]
    for thread in threads:
        thread.start()
    for one, thread in zip(group, threads, strict=True):
        thread.join(max(0.0, until + stall_s - time.monotonic()))
        if thread.is_alive():
            raise Failure("stalled", f"a transfer of {one.length} bytes did not return within {stall_s:g} s")
        if one.failure:
            raise one.failure


def measure(
    engine: Engine, peer: Peer, size: int, batch: int, streams: int, seconds: float, stall_s: float
) -> dict[str, Any]:
    """One cell. Raises Failure, OSError."""
    buffer = min(len(engine.memory), peer.hello["buffer"])
    room = buffer // streams
    group = [Stream(engine, peer, number * room, room, size, batch) for number in range(streams)]
    run(group, 0.0, stall_s)  # the first transfer opens connections; it is not part of the figures
    settle(peer, group)
    there = peer.ask("clear", length=buffer)["cpu_s"]

    cpu, begun = time.process_time(), time.perf_counter()
    run(group, seconds, stall_s)
    returned = time.perf_counter()
    cpu = time.process_time() - cpu
    there = settle(peer, group) - there
    late = time.perf_counter() - returned
    verify(engine, peer, group)
    latencies = [seconds for one in group for seconds in one.latencies_s]
    return {
        "size_bytes": size,
        "batch": batch,
        "transfers": len(latencies),
        "bytes": len(latencies) * size * batch,
        "elapsed_s": returned - begun + late,
        "late_s": late,
        "cpu_initiator_s": cpu,
        "cpu_target_s": there,
        "latencies_s": [round(seconds, 7) for seconds in latencies],
    }


def settle(peer: Peer, group: list[Stream]) -> float:
    """Wait until the target has the last bytes; its CPU seconds then. Raises Failure."""
    answer = peer.ask("settle", edges=[edge for one in group for edge in one.edges()])
    if answer["missing"]:
        raise Failure(
            "bytes",
            f"{answer['missing']} blocks had not arrived {LATE_PATIENCE_S:g} s after Mooncake called them done",
        )
    return float(answer["cpu_s"])


def verify(engine: Engine, peer: Peer, group: list[Stream]) -> None:
    """Raises Failure when what is there is not what was written."""
    slots = [(place, one.length) for one in group for place in one.written]
    there = peer.ask("check", slots=slots)["crc"]
    wrong = sum(engine.crc(*slot) != crc for slot, crc in zip(slots, there, strict=True))
    if wrong:
        raise Failure("bytes", f"{wrong} of {len(slots)} places differ from what was written")


def target(options: argparse.Namespace, told: Told) -> None:
    engine = Engine(options.host, options.protocol, options.device, options.buffer)
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    with socket.create_server((options.host, options.port), family=family, backlog=1) as listener:
        told("ready", port=listener.getsockname()[1], session=engine.session, mooncake=mooncake_version())
        connection, _ = listener.accept()
    with connection:
        told("peer")
        Target(engine, options.protocol).serve(connection)


def initiator(options: argparse.Namespace, told: Told) -> None:
    cells = [(int(size), int(batch)) for size, batch in json.loads(options.cells)]
    peer = Peer(options.peer, options.seconds + 3 * options.stall, options.stall)
    if peer.hello["protocol"] != options.protocol:
        raise Failure("peer", f"the target speaks {peer.hello['protocol']}, this end {options.protocol}")
    engine = Engine(peer.own_host, options.protocol, options.device, options.buffer)
    pattern = os.urandom(1 << 20)
    for offset in range(0, options.buffer, len(pattern)):
        engine.memory[offset : offset + len(pattern)] = pattern[: options.buffer - offset]
    told("ready", peer_buffer=peer.hello["buffer"], mooncake=mooncake_version(), there=peer.hello["mooncake"])
    for size, batch in cells:
        if size * batch * options.streams > min(options.buffer, peer.hello["buffer"]):
            raise Failure("peer", f"{batch} x {size} bytes do not fit the target's buffer")
        told("begin", size_bytes=size, batch=batch)
        told("cell", **measure(engine, peer, size, batch, options.streams, options.seconds, options.stall))


def main(argv: list[str]) -> NoReturn:
    parser = argparse.ArgumentParser(prog="agent")
    roles = {"target": target, "initiator": initiator}
    parser.add_argument("role", choices=roles)
    parser.add_argument("--told", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--peer", default="")
    parser.add_argument("--protocol", default="tcp")
    parser.add_argument("--device", default="")
    parser.add_argument("--buffer", type=int, default=DEFAULT_BUFFER)
    parser.add_argument("--cells", default="[]")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--stall", type=float, default=10.0)
    options = parser.parse_args(argv)
    told = Told(options.told)
    status = 0
    try:
        roles[options.role](options, told)
    except Failure as failure:
        told("failed", kind=failure.kind, error=str(failure))
        status = FAILED
    except OSError as error:
        told("failed", kind="peer", error=str(error) or type(error).__name__)
        status = FAILED
    except ImportError as error:
        told("failed", kind="engine", error=f"Mooncake cannot be imported here: {error}")
        status = FAILED
    # Not sys.exit: a thread may be in Mooncake for ever, and its destructors wait for it.
    os._exit(status)


if __name__ == "__main__":
    main(sys.argv[1:])
