"""Whole numbers to be drawn, as a table in a profile."""

import math
from typing import TYPE_CHECKING

from pydantic import Field, model_validator

from toolkit.core.config import Section

if TYPE_CHECKING:
    import numpy as np

LARGEST = 1 << 40
LEAST_INSIDE = 0.01  # a lognormal that falls between its limits less often is a mistake
TRIES = 10_000


class Numbers(Section):
    """One of three forms: {min, max}, uniform, both included; {median, sigma, min, max}, lognormal, drawn again
    outside its limits; {values, weights}, a list with shares."""

    min: int | None = Field(None, ge=0, description="Smallest number.")
    max: int | None = Field(None, ge=0, description="Largest number.")
    median: float | None = Field(None, gt=0, description="Median of a lognormal, before its limits.")
    sigma: float | None = Field(None, gt=0, description="Standard deviation of a lognormal's logarithm.")
    values: tuple[int, ...] | None = Field(None, description="The numbers themselves.")
    weights: tuple[float, ...] | None = Field(None, description="Their shares; equal ones where left out.")

    @model_validator(mode="after")
    def _one_form(self) -> "Numbers":
        if self.values is not None:
            self._check_values(self.values)
        elif self.weights is not None:
            raise ValueError("weights belong to values")
        elif (self.median is None) != (self.sigma is None):
            raise ValueError("a lognormal needs median and sigma")
        elif self.median is None and (self.min is None or self.max is None):
            raise ValueError("give min and max, or median and sigma, or values")
        if self.largest < self.smallest:
            raise ValueError(f"max {self.max} is under min {self.min}")
        if self.median and self.sigma and self._share_inside(self.median, self.sigma) < LEAST_INSIDE:
            raise ValueError("min and max leave less than 1 % of that lognormal")
        return self

    def _check_values(self, values: tuple[int, ...]) -> None:
        if not values or any(value < 0 for value in values):
            raise ValueError("values are at least one number, none under 0")
        if not (self.min is self.max is self.median is self.sigma is None):
            raise ValueError("values go with weights alone")
        weights = self.weights
        if weights is not None and (
            len(weights) != len(values) or any(w < 0 for w in weights) or not sum(weights)
        ):
            raise ValueError("as many weights as values, none under 0, one above 0")

    @property
    def smallest(self) -> int:
        return min(self.values) if self.values is not None else self.min or 0

    @property
    def largest(self) -> int:
        if self.values is not None:
            return max(self.values)
        return LARGEST if self.max is None else self.max

    def _share_inside(self, median: float, sigma: float) -> float:
        def below(x: float) -> float:
            return 0.5 * math.erfc(-math.log(x / median) / sigma / math.sqrt(2)) if x > 0 else 0.0

        return below(self.largest + 0.5) - below(self.smallest - 0.5)

    def draw(self, rng: "np.random.Generator") -> int:
        if self.values is not None:
            return self._pick(self.values, float(rng.random()))
        if self.median is None or self.sigma is None:
            return int(rng.integers(self.smallest, self.largest, endpoint=True))
        for _ in range(TRIES):
            number = round(self.median * math.exp(self.sigma * float(rng.standard_normal())))
            if self.smallest <= number <= self.largest:
                return number
        raise AssertionError("the limits were checked to leave 1 %")

    def _pick(self, values: tuple[int, ...], mark: float) -> int:
        weights = self.weights or (1.0,) * len(values)
        mark *= sum(weights)
        for value, weight in zip(values, weights, strict=True):
            mark -= weight
            if mark < 0:
                return value
        return max(v for v, w in zip(values, weights, strict=True) if w)
