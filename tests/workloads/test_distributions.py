"""Numbers are drawn as the profile's table says."""

import numpy as np
import pytest

from toolkit.core.config import validate
from toolkit.core.errors import UsageFault
from workloads.distributions import Numbers


def drawn(numbers: Numbers, count: int = 4000) -> np.ndarray:
    rng = np.random.default_rng(1)
    return np.array([numbers.draw(rng) for _ in range(count)])


def test_each_form_has_its_shape():
    """Uniform, lognormal within its limits, and a list with shares."""
    uniform = drawn(Numbers(min=3, max=7))
    lognormal = drawn(Numbers(median=100.0, sigma=0.8, min=10, max=1000))
    listed = drawn(Numbers(values=(1, 5), weights=(3.0, 1.0)))

    assert set(uniform) == {3, 4, 5, 6, 7}
    assert np.median(lognormal) == pytest.approx(100, rel=0.06)
    assert np.log(lognormal).std() == pytest.approx(0.8, rel=0.06)
    assert lognormal.min() >= 10 and lognormal.max() <= 1000
    assert (listed == 5).mean() == pytest.approx(0.25, abs=0.03)
    assert set(drawn(Numbers(values=(2, 9)))) == {2, 9}


def test_limits_do_not_pile_up():
    """A lognormal is drawn again outside its limits: clipping would make the limit the most frequent number."""
    numbers = drawn(Numbers(median=100.0, sigma=1.0, min=1, max=120))

    assert (numbers == 120).mean() < 0.02


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ({}, "min and max"),
        ({"min": 1}, "min and max"),
        ({"min": 5, "max": 4}, "max 4 is under min 5"),
        ({"median": 5.0}, "median and sigma"),
        ({"median": 5.0, "sigma": 0.1, "min": 500, "max": 600}, "less than 1 %"),
        ({"values": []}, "at least one"),
        ({"values": [-1]}, "under 0"),
        ({"values": [1], "min": 1}, "weights alone"),
        ({"values": [1, 2], "weights": [1.0]}, "as many weights"),
        ({"values": [1], "weights": [0.0]}, "above 0"),
        ({"weights": [1.0]}, "belong to values"),
    ],
)
def test_a_mistake_is_named(table, told):
    """Half a form, two forms, or an impossible one."""
    with pytest.raises(UsageFault, match=told):
        validate(Numbers, table, "x")
