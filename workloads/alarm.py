"""One callback at an exact time: libuv's timers count whole milliseconds, which is a late request at every rate.

On Linux a timerfd (CLOCK_MONOTONIC, nanoseconds, absolute) wakes the loop like any readable socket; elsewhere the
loop's own timer does.
"""

import asyncio
import contextlib
import ctypes
import os
import sys
import time
from collections.abc import Callable
from typing import Protocol

TFD_FLAGS = 0o4000 | 0o2000000  # TFD_NONBLOCK | TFD_CLOEXEC
TFD_TIMER_ABSTIME = 1
CLOCK_MONOTONIC = 1


class Alarm(Protocol):
    """Calls back once for each `set`, unless it was set again before."""

    def set(self, at: float, callback: Callable[[], None]) -> None:
        """Call back when the clock reads `at`; soon, when it does already."""

    def close(self) -> None:
        """Forget what was set."""


class _Itimerspec(ctypes.Structure):
    _fields_ = [(name, ctypes.c_long) for name in ("every_s", "every_ns", "at_s", "at_ns")]


class TimerFdAlarm:
    """On time.monotonic(). Raises OSError where the kernel has no timerfd. Belongs to the running loop."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        try:
            self._settime = libc.timerfd_settime
            create = libc.timerfd_create
        except AttributeError as error:
            raise OSError("no timerfd in this C library") from error
        self._fd = create(CLOCK_MONOTONIC, TFD_FLAGS)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._spec = _Itimerspec()
        self._by_reference = ctypes.byref(self._spec)
        self._callback: Callable[[], None] | None = None
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._fd, self._fire)

    def set(self, at: float, callback: Callable[[], None]) -> None:
        self._callback = callback
        spec = self._spec
        # Zero would disarm; a time in the past fires at once.
        spec.at_s, spec.at_ns = divmod(max(1, int(at * 1e9)), 1_000_000_000)
        self._settime(self._fd, TFD_TIMER_ABSTIME, self._by_reference, None)

    def close(self) -> None:
        self._callback = None
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _fire(self) -> None:
        with contextlib.suppress(BlockingIOError):  # set again between the wake-up and here
            os.read(self._fd, 8)
            callback, self._callback = self._callback, None
            if callback is not None:
                callback()


class LoopAlarm:
    """On the loop's timers, for any clock whose seconds are the loop's."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._loop = asyncio.get_running_loop()
        self._now = now
        self._handle: asyncio.TimerHandle | None = None

    def set(self, at: float, callback: Callable[[], None]) -> None:
        self.close()
        self._handle = self._loop.call_later(max(0.0, at - self._now()), callback)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


def make_alarm() -> Alarm:
    """The most exact one here, on time.monotonic()."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            return TimerFdAlarm()
    return LoopAlarm()
