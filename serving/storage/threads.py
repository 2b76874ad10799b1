"""Blocking work beside the event loop, on threads that nobody waits for at exit: a store that hangs must not hold up the end."""

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Threads:
    """One thread per call; results come back to the loop that this was made on."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def run(self, work: Callable[[], T], then: Callable[[T | BaseException], None]) -> None:
        """`then` gets what `work` returned or raised, on the event loop; never, once that has ended."""

        def both() -> None:
            outcome: T | BaseException
            try:
                outcome = work()
            except BaseException as error:  # obstore's panics are no Exception
                outcome = error
            self.tell(lambda: then(outcome))

        threading.Thread(target=both, name="storage", daemon=True).start()

    def tell(self, then: Callable[[], None]) -> None:
        """From any thread: call it on the event loop."""
        try:
            self._loop.call_soon_threadsafe(then)
        except RuntimeError:  # the loop is closed: nobody is left to hear
            return
