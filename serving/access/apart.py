"""A decoding process, seen from the gateway: started when first needed, one image at a time, ended when it oversteps."""

import contextlib
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import asdict, dataclass
from typing import Any

from serving.access.decoder import Choice
from serving.access.header import ImageHeader
from serving.access.paint import Painted
from serving.access.painter import receive, send
from serving.config import Handover
from toolkit.core.errors import Busy, InvalidRequest, TooLarge

_CRASHES = frozenset({signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL})
_PATIENCE, _SILENCE_S = 4.0, 10.0
"""An answer is waited for this many times the CPU limit and these seconds. The limit ends a process at work long before,
on cores shared by four; this ends a stopped one."""


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be made of an image, and within which bounds. cpu_s: the process ends there; memory_bytes: estimate."""

    header: ImageHeader
    target: tuple[int, int]
    handover: Handover
    cpu_s: float
    memory_bytes: int


class Painter:
    """One process. Used by one thread at a time; close may come from any."""

    def __init__(self, nice: int, decoder: Choice = "auto") -> None:
        self._nice = nice
        self._decoder = decoder
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._closed = False
        self.lost = 0
        """How often the process was ended from outside."""
        self._at_work = threading.Lock()

    @property
    def pid(self) -> int | None:
        """None while it does not run."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Starts the process where it does not run; it is ready a moment later."""
        if self._process is not None or self._closed:
            return
        ours, theirs = socket.socketpair()
        with theirs:
            told = [str(theirs.fileno()), str(self._nice), self._decoder]
            command = [sys.executable, "-m", "serving.access.painter", *told]
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        self._channel = ours

    def paint(self, data: bytes, work: Work) -> Painted:
        """The prepared picture.

        Raises InvalidRequest(image_invalid; image_too_costly where the CPU limit ended it), Busy(image_process_lost)
        where the process is ended from outside twice.
        """
        head = {
            "header": asdict(work.header),
            "target": work.target,
            "handover": work.handover,
            "cpu_s": work.cpu_s,
            "memory_bytes": work.memory_bytes,
        }
        with self._at_work:
            try:
                for _ in range(2):
                    answer = self._asked(head, data, _PATIENCE * work.cpu_s + _SILENCE_S)
                    if answer is not None:
                        found, file = answer
                        if "code" in found:
                            raise InvalidRequest(found["message"], code=found["code"])
                        return Painted(file, **found)
                    _judge(self._end(), work)
                    self.lost += 1
            finally:
                if self._closed:
                    self._end()
        raise Busy(
            "the process that decodes the image was ended from outside.",
            code="image_process_lost",
            retry_after_s=1.0,
        )

    def _asked(
        self, head: dict[str, object], data: bytes, patience_s: float
    ) -> tuple[dict[str, Any], bytes] | None:
        """The answer; None where the process ends, or stays silent, first."""
        self.start()
        if self._channel is None:
            return None
        self._channel.settimeout(patience_s)
        with contextlib.suppress(OSError):  # it may end before it has read everything
            send(self._channel, head, data)
            return receive(self._channel)
        return None

    def reap(self) -> None:
        """Buries a process that was ended while idle; the next image starts another. Takes microseconds."""
        if self._process is not None and self._at_work.acquire(blocking=False):
            try:
                if self._process is not None and self._process.poll() is not None:
                    self._end()
                    self.lost += 1
            finally:
                self._at_work.release()

    def close(self) -> None:
        """Ends the process, also in the middle of an image, which then fails. Idempotent."""
        self._closed = True
        process = self._process
        if process is not None:
            process.kill()
        if self._at_work.acquire(blocking=False):  # else the thread that holds it sees to the rest
            try:
                self._end()
            finally:
                self._at_work.release()

    def _end(self) -> int:
        """The exit status of a process that answers no more; 0 where there is none."""
        if self._process is None or self._channel is None:
            return 0
        self._channel.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0.5)
        self._process.kill()
        status = self._process.wait()
        self._process = self._channel = None
        return status


def _judge(status: int, work: Work) -> None:
    """Raises what an exit status says of the image; returns where it says nothing."""
    name = work.header.format
    if status == -signal.SIGPROF:
        raise TooLarge(
            f"decoding the {name} image takes more than {work.cpu_s:.1f} s of CPU, the limit for its size.",
            code="image_too_costly",
        )
    if -status in _CRASHES:
        raise InvalidRequest(f"the {name} image breaks its decoder.", code="image_invalid")
