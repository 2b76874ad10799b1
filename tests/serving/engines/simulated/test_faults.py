"""Faults come as JSON from whoever runs a drill: what is wrong is named, and changes nothing."""

from typing import Any

import pytest

from serving.engines.simulated.faults import Faults
from serving.engines.simulated.wire import Wire


def test_what_is_named_changes_and_the_rest_stays() -> None:
    """A wire fault replaces the one before as a whole."""
    before = Faults.of({"slow_factor": 2, "wire": {"then": "reset", "after_events": 3}})
    after = Faults.of({"freeze": True, "wire": {"status": 429}}, before)

    assert (after.slow_factor, after.freeze, after.wire) == (2.0, True, Wire(status=429))
    assert Faults.of(after.told()) == after


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"slow": 3}, "unknown field 'slow'"),
        ({"slow_factor": 0}, "slow_factor cannot be 0"),
        ({"slow_factor": "2"}, "slow_factor cannot be '2'"),
        ({"transfer_failure_rate": 1.5}, "transfer_failure_rate cannot be 1.5"),
        ({"transfer_delay_s": -1}, "transfer_delay_s cannot be -1"),
        ({"freeze": 1}, "freeze cannot be 1"),
        ({"seed": 1.5}, "seed cannot be 1.5"),
        ({"seed": True}, "seed cannot be True"),
        ({"wire": {"then": "explode"}}, "then cannot be 'explode'"),
        ({"wire": 3}, "expected an object"),
        ([], "expected an object"),
    ],
)
def test_what_is_wrong_is_named(given: Any, says: str) -> None:
    """Unknown names, wrong types, values out of bounds."""
    with pytest.raises(ValueError, match=says):
        Faults.of(given)
