"""CPU seconds per image, measured here: each image once, alone and with every core busy, never cached.

The unit is one image of a class, as its workload draws them: a class's images differ in size, so its mean is known no
better than the images that were measured allow. Bounds are a bootstrap over images, which includes the noise of the
machine. CPU time, so other work on the machine costs little; what it costs (shared caches) is in it.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from serving.access.grid import ImageGrid
from serving.access.paint import paint
from serving.access.picture import examine, wrap
from serving.config import AccessConfig
from serving.plan_cpu import ImageCost
from toolkit.core.slo import percentile

LEAST, MOST = 16, 160  # images of a class
ACCURATE = 0.05  # half the width of the 95 % bounds, over the mean: then a class is known well enough
RESAMPLES = 2000
BATCH = 8

Work = Callable[[bytes], object]


def prepare_one(config: AccessConfig, grid: ImageGrid) -> Work:
    """What a decode thread does with the bytes of one image: probe, decode, resize, encode, base64."""

    def work(data: bytes) -> object:
        task = examine(data, config, grid)
        return wrap(
            paint(data, task.header, task.target, config.handover, config.decoder).file, task, config.handover
        )

    return work


@dataclass(slots=True)
class _Class:
    images: Iterator[bytes]
    alone: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    spent_s: float = 0.0
    over: bool = False


def measure_images(
    classes: Mapping[str, Iterator[bytes]],
    work: Work,
    cores: int,
    cpu_s: float,
    on_progress: Callable[[str, int], None] = lambda _, __: None,
) -> dict[str, ImageCost]:
    """The cost of each class's images; a class without images is left out.

    A class ends when its mean is known to ACCURATE, or its images, or its share of `cpu_s` are used up (LEAST images
    are measured in any case, if there are so many). on_progress: class and images so far. Raises what `work` raises.
    """
    states = {name: _Class(iter(images)) for name, images in classes.items()}
    with ThreadPoolExecutor(cores) as pool:
        for state in states.values():
            _busy(list(islice(state.images, 1)), work, pool)  # warm: imports, tables, pages of memory
        turn = 0
        while not all(state.over for state in states.values()):
            for name, state in states.items():
                if not state.over:
                    _batch(state, work, pool, alone_first=turn % 2 == 0)
                    state.over |= _known(state, cpu_s / len(states))
                    on_progress(name, len(state.alone))
            turn += 1
    return {name: image_cost(state.alone, state.busy) for name, state in states.items() if state.alone}


def image_cost(alone: list[float], busy: list[float]) -> ImageCost:
    """The figures of one class, of the dearer of the two ways."""
    ways = [float(np.mean(way)) for way in (alone, busy)]
    worse = np.asarray(busy if ways[1] > ways[0] else alone)
    mean = float(worse.mean())
    low, high = bounds(worse.tolist())
    return ImageCost(
        n=len(worse),
        alone_s=ways[0],
        busy_s=ways[1],
        gateway_s=0.0,
        mean_s=mean,
        low_s=low,
        high_s=high,
        p50_s=percentile(worse.tolist(), 0.5),
        p95_s=percentile(worse.tolist(), 0.95),
        cv2=float(worse.var()) / mean**2,
    )


def bounds(values: list[float]) -> tuple[float, float]:
    """95 % bounds of the mean: percentiles of means of resampled values; the same values give the same bounds."""
    sample = np.asarray(values)
    picks = np.random.default_rng(1).integers(len(sample), size=(RESAMPLES, len(sample)))
    low, high = np.quantile(sample[picks].mean(axis=1), [0.025, 0.975])
    return float(low), float(high)


def _batch(state: _Class, work: Work, pool: ThreadPoolExecutor, *, alone_first: bool) -> None:
    images = list(islice(state.images, BATCH))
    state.over = len(images) < BATCH
    if not images:
        return
    before = time.process_time()
    if alone_first:
        state.alone += _alone(images, work)
        state.busy += _busy(images, work, pool)
    else:
        state.busy += _busy(images, work, pool)
        state.alone += _alone(images, work)
    state.spent_s += time.process_time() - before


def _alone(images: list[bytes], work: Work) -> list[float]:
    spent = []
    for data in images:
        before = time.process_time()
        work(data)
        spent.append(time.process_time() - before)
    return spent


def _busy(images: list[bytes], work: Work, pool: ThreadPoolExecutor) -> list[float]:
    """Each thread's own CPU time, raised to the process's: a decoder's helper threads count too."""

    def one(data: bytes) -> float:
        before = time.thread_time()
        work(data)
        return time.thread_time() - before

    before = time.process_time()
    spent = list(pool.map(one, images))
    whole = time.process_time() - before
    scale = max(1.0, whole / sum(spent)) if spent else 1.0
    return [value * scale for value in spent]


def _known(state: _Class, cpu_s: float) -> bool:
    n = len(state.alone)
    if n < LEAST:
        return state.over
    if n >= MOST or state.spent_s >= cpu_s:
        return True
    low, high = bounds(state.busy)
    return (high - low) / 2 <= ACCURATE * float(np.mean(state.busy))
