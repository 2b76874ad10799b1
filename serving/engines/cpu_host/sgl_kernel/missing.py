"""Kernels that are imported but not written."""

from collections.abc import Callable
from typing import NoReturn


def missing(name: str) -> Callable[..., NoReturn]:
    """A function under that name which says, when called, that there is no such kernel here."""

    def kernel(*_args: object, **_kwargs: object) -> NoReturn:
        raise NotImplementedError(f"{name} is not in the CPU stand-in of sgl-kernel: this model or option needs a GPU")

    kernel.__name__ = name.rpartition(".")[2]
    return kernel
