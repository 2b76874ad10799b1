"""Every request ends in one outcome, and gives back all it took, before the real engines too."""

import pytest

from tests.live.faults import accounted

pytestmark = pytest.mark.engine


def test_150_requests_with_random_faults_end_in_150_outcomes_and_leave_nothing(running):
    """Hang-ups at any moment, nonsense, budgets too short to be kept: no slot, seat, pair or lease is held afterwards, and no
    engine works for anybody."""
    outcomes = accounted(running, 150, at_once=12, seed=1)

    assert outcomes["completed"] > 50 and outcomes["rejected"] > 5 and outcomes["client_closed"] > 5
