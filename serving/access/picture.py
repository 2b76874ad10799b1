"""One image, from its bytes to what the engine gets: the CPU part. Knows nothing of threads, queues or caches."""

from dataclasses import dataclass

import pybase64

from serving.access.cost import Cost, cost_of
from serving.access.decoder import choose
from serving.access.grid import ImageGrid
from serving.access.header import ImageHeader
from serving.access.probe import probe
from serving.config import AccessConfig, Handover
from toolkit.core.sample import ImageRecord


@dataclass(frozen=True, slots=True)
class Prepared:
    """One image as the engine gets it, and the record of what came in."""

    data_uri: str
    record: ImageRecord


@dataclass(frozen=True, slots=True)
class Task:
    """An image that keeps every limit, and what is to become of it. target: (width, height)."""

    header: ImageHeader
    target: tuple[int, int]
    tokens: int
    cost: Cost


def examine(data: bytes, limits: AccessConfig, grid: ImageGrid) -> Task:
    """What is to become of the image, by its header. Raises InvalidRequest and TooLarge, as probe does."""
    header = probe(data, limits)
    target = grid.target_size(*header.size)
    cost = cost_of(header, target, choose(limits.decoder).name, limits.handover)
    return Task(header, target, grid.tokens(*header.size), cost)


def wrap(file: bytes, task: Task, handover: Handover) -> Prepared:
    """The file as a data URI, beside the record of what came in (origin: data)."""
    width, height = task.header.size
    return Prepared(
        data_uri=f"data:image/{handover};base64,{pybase64.b64encode_as_string(file)}",
        record=ImageRecord(
            width=width,
            height=height,
            size_bytes=task.header.size_bytes,
            format=task.header.format.lower(),
            tokens=task.tokens,
            prepared_width=task.target[0],
            prepared_height=task.target[1],
            origin="data",
        ),
    )
