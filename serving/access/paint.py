"""One image's bytes to the file that the engine gets, and what each step took. The same in a thread and in a process."""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from serving.access.decode import decode
from serving.access.decoder import Choice
from serving.access.encode import encode
from serving.access.header import ImageHeader
from serving.access.steps import resized_s

if TYPE_CHECKING:  # the decoding process loads this module, and no pydantic
    from serving.config import Handover


@dataclass(frozen=True, slots=True)
class Painted:
    """A prepared picture as a file, and the CPU time of each step, seconds."""

    file: bytes
    decode_s: float
    resize_s: float
    encode_s: float


def paint(
    data: bytes, header: ImageHeader, target: tuple[int, int], handover: "Handover", decoder: Choice
) -> Painted:
    """Raises InvalidRequest(image_invalid) where the bytes are no whole picture."""
    resized_s()
    began = (
        time.thread_time()
    )  # an armed ITIMER_PROF makes the process's clock as coarse as the kernel's ticks
    picture = decode(data, header, target, decoder)
    decoded, resize_s = time.thread_time(), resized_s()
    file = encode(picture, handover)
    return Painted(file, decoded - began - resize_s, resize_s, time.thread_time() - decoded)
