"""Decoding in a process of its own: the same picture, and an end to what never ends."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest
from PIL import Image

from serving.access.apart import Painter, Work
from serving.access.decode import decode
from serving.access.encode import encode
from serving.access.probe import probe
from serving.config import AccessConfig
from tests.serving.access import pictures
from tests.serving.access.pictures import saved
from toolkit.core.errors import Busy, InvalidRequest, TooLarge

LOOSE = AccessConfig(max_sos_markers=10_000)
PHOTO = saved(pictures.photo(), "JPEG")


def work_on(data: bytes, cpu_s: float = 20.0, memory_bytes: int = 100_000_000) -> Work:
    return Work(probe(data, LOOSE), (56, 28), "png", cpu_s, memory_bytes)


@contextmanager
def painter() -> Iterator[Painter]:
    made = Painter(nice=0)
    try:
        yield made
    finally:
        made.close()
        assert made.pid is None


def gone(pid: int) -> bool:
    """Within 5 s."""
    ends = time.monotonic() + 5
    while time.monotonic() < ends:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.01)
    return False


@pytest.mark.slow
def test_a_process_that_is_killed_while_idle_is_buried_and_the_next_image_has_another() -> None:
    """It is no zombie until its lane is used again; one at work is left alone."""
    with painter() as made:
        made.start()
        first = made.pid
        assert first is not None
        made.reap()
        assert (made.pid, made.lost) == (first, 0)
        os.kill(first, signal.SIGKILL)
        ends = time.monotonic() + 5
        while made.pid is not None and time.monotonic() < ends:
            made.reap()
            time.sleep(0.005)
        assert (made.pid, made.lost) == (None, 1)
        assert not psutil.pid_exists(first)
        made.paint(PHOTO, work_on(PHOTO))
        assert made.pid not in (None, first)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "AVIF"])
def test_the_picture_is_the_same_as_here(kind: str) -> None:
    """To the byte."""
    data = saved(pictures.photo(), kind)
    with painter() as made:
        painted = made.paint(data, work_on(data))
    assert painted.file == encode(decode(data, probe(data, LOOSE), (56, 28)), "png")
    assert min(painted.decode_s, painted.resize_s, painted.encode_s) > 0


@pytest.mark.slow
def test_a_decode_that_passes_its_cpu_limit_is_ended() -> None:
    """In the middle of the decoder's own code; the next image gets a new process."""
    bomb = pictures.scan_bomb()
    with painter() as made:
        with pytest.raises(TooLarge, match=r"more than 0\.3 s of CPU") as caught:
            made.paint(bomb, work_on(bomb, cpu_s=0.3))
        assert caught.value.code.code == "image_too_costly"
        assert made.pid is None
        assert made.paint(PHOTO, work_on(PHOTO)).file


@pytest.mark.slow
def test_a_decode_that_passes_its_memory_is_refused_it() -> None:
    """Twice the estimate and a little for the interpreter; the process survives."""
    large = saved(Image.new("RGB", (7000, 5000)), "PNG")
    with painter() as made:
        assert made.paint(PHOTO, work_on(PHOTO)).file
        first = made.pid
        with pytest.raises(InvalidRequest) as caught:
            made.paint(large, work_on(large, memory_bytes=1_000_000))
        assert caught.value.code.code == "image_invalid"
        assert made.pid == first
        assert made.paint(large, work_on(large, memory_bytes=150_000_000)).file


@pytest.mark.slow
def test_a_bad_image_leaves_the_process_as_it_was() -> None:
    whole = saved(pictures.photo(), "PNG")
    cut = whole[:5000] + bytes(500) + whole[5500:]
    with painter() as made:
        for _ in range(3):
            with pytest.raises(InvalidRequest):
                made.paint(cut, work_on(cut))
        first = made.pid
        assert made.paint(PHOTO, work_on(PHOTO)).file
        assert made.pid == first


@pytest.mark.slow
def test_a_process_killed_from_outside_is_replaced_once() -> None:
    """The image is tried again; killed again, it is a fault of ours and not of the image."""
    bomb = pictures.scan_bomb()
    with painter() as made:
        made.paint(PHOTO, work_on(PHOTO))

        def kill_twice() -> None:
            seen: set[int] = set()
            while len(seen) < 2:
                pid = made.pid
                if pid is not None and pid not in seen:
                    time.sleep(0.05)
                    seen.add(pid)
                    os.kill(pid, signal.SIGKILL)

        killer = threading.Thread(target=kill_twice)
        killer.start()
        with pytest.raises(Busy, match="from outside") as caught:
            made.paint(bomb, work_on(bomb))
        killer.join()
        assert (caught.value.status, caught.value.retry_after_s) == (503, 1.0)
        assert made.paint(PHOTO, work_on(PHOTO)).file


@pytest.mark.slow
def test_closing_ends_it_in_the_middle_of_an_image() -> None:
    bomb = pictures.scan_bomb()
    made = Painter(nice=0)
    made.paint(PHOTO, work_on(PHOTO))
    pid = made.pid
    assert pid is not None
    closing = threading.Timer(0.2, made.close)
    closing.start()
    with pytest.raises(Busy):
        made.paint(bomb, work_on(bomb))
    closing.join()
    assert gone(pid)


@pytest.mark.slow
def test_it_does_not_outlive_the_gateway() -> None:
    """Killed with SIGKILL, a gateway cannot say goodbye; the process sees its channel close."""
    script = (
        "import os\nfrom serving.access.apart import Painter\nmade = Painter(0)\nmade.start()\n"
        "print(made.pid, flush=True)\nos.kill(os.getpid(), 9)"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert gone(int(told.stdout))
