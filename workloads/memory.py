"""Keeps the C library's heap from being torn while bodies are made."""

import ctypes

M_MMAP_THRESHOLD = -3  # mallopt(3)
LARGE_BYTES = 1 << 20


def keep_large_blocks_apart() -> bool:
    """Give each block of over 1 MiB back to the system when it is freed; whether this C library was told.

    glibc raises that limit by itself to 32 MiB once a large block is freed. Pixels of pictures then lie between the
    bodies that stay, and the holes they leave hold no next picture: the process grew to nine times its bodies.
    """
    try:
        return bool(ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE_BYTES))
    except (OSError, AttributeError):
        return False  # another C library has another heap
