"""Named random streams from one seed.

Every use of chance has a name ("arrivals", "request/17/text"). A stream depends on the run's seed and its own name
only, so a new stream, or a draw more in one of them, changes no other: two runs that differ in rate still ask the
same questions about the same pictures.

The seed is the entropy of a numpy SeedSequence; the name's SHA-256 is its spawn key, which is how SeedSequence keeps
children statistically independent.
"""

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def name_key(name: str) -> tuple[int, ...]:
    """The name as a spawn key: four 32-bit words."""
    digest = hashlib.sha256(name.encode()).digest()
    return tuple(int.from_bytes(digest[i : i + 4], "big") for i in range(0, 16, 4))


class Seeds:
    """The streams of one run."""

    def __init__(self, seed: int) -> None:
        """Raises ValueError for a negative seed: SeedSequence knows none."""
        if seed < 0:
            raise ValueError("a seed is 0 or larger")
        self.seed = seed

    def rng(self, name: str) -> "np.random.Generator":
        """A fresh generator at the start of the stream of that name."""
        import numpy as np

        return np.random.Generator(np.random.PCG64(self._sequence(name)))

    def number(self, name: str) -> int:
        """A 63-bit integer of that name, for what is seeded later (a recipe that travels in a file)."""
        low, high = (int(word) for word in self._sequence(name).generate_state(2))
        return (high & 0x7FFF_FFFF) << 32 | low

    def _sequence(self, name: str) -> "np.random.SeedSequence":
        import numpy as np

        return np.random.SeedSequence(entropy=self.seed, spawn_key=name_key(name))
