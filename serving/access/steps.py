"""How long the steps of one picture take: CPU seconds of this thread. A picture is made on one thread, step by step."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class _Spent(threading.local):
    resize_s = 0.0


_spent = _Spent()


@contextmanager
def resizing() -> Iterator[None]:
    """Counts what is spent inside as resizing."""
    began = time.thread_time()
    try:
        yield
    finally:
        _spent.resize_s += time.thread_time() - began


def resized_s() -> float:
    """What this thread spent on resizing since it was last asked."""
    spent, _spent.resize_s = _spent.resize_s, 0.0
    return spent
