"""An event loop whose time is virtual: it jumps to the next timer whenever nothing is left to do, and never sleeps.

What would go to a thread is done at once, in the loop, so a run is the same each time. `asyncio.timeout`, `sleep` and `call_later`
mean virtual seconds; `clock` is the same time for code that takes a Clock.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

T = TypeVar("T")
EPOCH_S = 1_700_000_000.0


class _Jumping(selectors.SelectSelector):
    """Waits for nothing but what is there already; the wait becomes virtual time."""

    def __init__(self, waited: Callable[[float], None]) -> None:
        super().__init__()
        self._waited = waited

    def select(self, timeout: float | None = None) -> list[Any]:
        found = super().select(0)
        if not found:
            assert timeout is not None, "nothing is left to do, and somebody waits"
            self._waited(timeout)
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its clock starts at 1000 s."""

    def __init__(self) -> None:
        self._now = 1000.0
        super().__init__(_Jumping(self._pass))

    def time(self) -> float:
        return self._now

    def _pass(self, seconds: float) -> None:
        self._now += max(0.0, seconds)

    def run_in_executor(self, executor: Executor | None, func: Callable[..., T], *args: Any) -> Any:
        return asyncio.wrap_future(AtOnce().submit(func, *args), loop=self)


class AtOnce(Executor):
    """In the place of a pool of threads: the work is done when it is handed over."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        done: Future[T] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except BaseException as error:  # as a thread would keep it
            done.set_exception(error)
        return done


class LoopClock:
    """The loop's time as a Clock."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def monotonic(self) -> float:
        return self._loop.time()

    def wall(self) -> float:
        return EPOCH_S + self._loop.time()


def run(main: Coroutine[Any, Any, T]) -> T:
    """As asyncio.run, in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
