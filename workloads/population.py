"""What the clients of a real service ask: joint draws of text, images and answer lengths.

A client is drawn by its rate, then each field from that client's own distribution, with a uniform number of its own.
So fields go together as far as clients differ (the ones with long texts also send many images) and no further. One
uniform number for all fields of a request would make the longest text always come with the most images and the longest
answer; fields drawn from the whole service, apart from each other, would lose what clients have in common.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from toolkit.core.classify import LONG_TEXT_TOKENS, length_of
from toolkit.core.sample import WorkloadClass
from workloads.texts import class_tokens
from workloads.traces.servegen import Asked, Client, Shares

if TYPE_CHECKING:
    import numpy as np

WINDOW_S = 21_600.0  # ServeGen's datasets tell a day in four parts
CAPPED_FROM = 1209
"""Tokens of one image from which its source size is hidden: Qwen-VL's processor scales sources of over 1,280 x 28 x 28
pixels down to that area and rounds both sides down, which leaves at least (sqrt(1280) - 1) squared tokens."""

TRIES = 20_000  # a class rarer than one in thousands is no part of what they ask


@dataclass(frozen=True, slots=True)
class Asking:
    """One request as a client asks it. image_tokens: of each image."""

    client: int
    text_tokens: int
    output_tokens: int
    image_tokens: tuple[int, ...]

    @property
    def capped(self) -> bool:
        """Whether it is one image whose source was at least as large as the processor's limit."""
        return len(self.image_tokens) == 1 and self.image_tokens[0] >= CAPPED_FROM


def class_of(asking: Asking) -> WorkloadClass:
    """The class that the request will have. One image at the processor's limit stands for a large photo."""
    return _class_of(len(asking.image_tokens), class_tokens(asking.text_tokens), asking.capped)


def _class_of(images: int, tokens: int, capped: bool) -> WorkloadClass:
    if not images:
        return WorkloadClass.TEXT_ONLY
    if capped:
        return WorkloadClass.HIGH_RES
    return (
        WorkloadClass.MULTI_IMAGE_LONG
        if images > 1 or length_of(tokens) == "long"
        else WorkloadClass.IMAGE_SHORT
    )


class Population:
    """The clients of one part of the day."""

    def __init__(self, clients: Iterable[Client], start_s: float, max_images: int) -> None:
        """Raises ValueError when no client asks anything in the part of the day that begins at `start_s`."""
        self._fields: list[tuple[int, Asked, dict[str, _Inverse]]] = []
        rates: list[float] = []
        for client in clients:
            rate = client.rate(start_s, start_s + WINDOW_S)
            asked = next((asked for asked in client.asked if asked.start_s == start_s), None)
            if rate > 0 and asked is not None:
                self._fields.append((client.number, asked, _inverses(asked, max_images)))
                rates.append(rate)
        if not rates:
            raise ValueError(f"no client asks anything from second {start_s:g} of the day")
        total = sum(rates)
        self.rates: tuple[float, ...] = tuple(rate / total for rate in rates)
        self._whose = _Inverse(tuple(enumerate(self.rates)))

    def draw(self, rng: "np.random.Generator") -> Asking:
        """One request."""
        number, _, fields = self._fields[self._whose(rng)]
        images = fields["image_count"](rng)
        text, output = fields["text_tokens"](rng), fields["output_tokens"](rng)
        return Asking(number, text, output, tuple(fields["image_tokens"](rng) for _ in range(images)))

    def draw_of(
        self, wanted: WorkloadClass, rng: "np.random.Generator", fits: Callable[[Asking], bool]
    ) -> Asking:
        """One request of that class that also `fits`: drawn again until it is.

        Raises ValueError when the clients ask (almost) nothing of the kind.
        """
        for _ in range(TRIES):
            asking = self.draw(rng)
            if class_of(asking) is wanted and fits(asking):
                return asking
        raise ValueError(f"these clients ask no {wanted.value}")

    def shares(self) -> Mapping[WorkloadClass, float]:
        """The share of each class in what the clients ask, exactly."""
        found: dict[WorkloadClass, float] = {}
        for rate, (_, asked, fields) in zip(self.rates, self._fields, strict=True):
            long = sum(share for value, share in asked.text_tokens if class_tokens(value) >= LONG_TEXT_TOKENS)
            capped = sum(share for value, share in asked.image_tokens if value >= CAPPED_FROM)
            for images, count_share in fields["image_count"].shares:
                for tokens, text_share in ((LONG_TEXT_TOKENS, long), (0, 1 - long)):
                    for at_cap, cap_share in ((True, capped), (False, 1 - capped)):
                        name = _class_of(images, tokens, at_cap and images == 1)
                        found[name] = found.get(name, 0.0) + rate * count_share * text_share * cap_share
        return found


class _Inverse:
    """A distribution, drawn by inverting its cumulated shares: one uniform number per draw."""

    def __init__(self, shares: Shares) -> None:
        self.shares = tuple(pair for pair in shares if pair[1] > 0)
        self._edges = list(accumulate(share for _, share in self.shares))

    def __call__(self, rng: "np.random.Generator") -> int:
        at = bisect_right(self._edges, float(rng.random()) * self._edges[-1])
        return self.shares[min(at, len(self.shares) - 1)][0]


def _inverses(asked: Asked, max_images: int) -> dict[str, _Inverse]:
    counts = tuple(pair for pair in asked.image_count if pair[0] <= max_images)
    total = sum(share for _, share in counts)
    if not total:
        raise ValueError(f"a client always sends more than {max_images} images")
    return {
        "image_count": _Inverse(tuple((value, share / total) for value, share in counts)),
        "text_tokens": _Inverse(asked.text_tokens),
        "output_tokens": _Inverse(asked.output_tokens),
        "image_tokens": _Inverse(asked.image_tokens),
    }
