"""Named random streams: the same name repeats, another name is independent."""

import numpy as np
import pytest

from toolkit.core.seed import Seeds


def test_a_stream_depends_on_seed_and_name_only():
    """Asking for other streams first, or drawing from them, changes nothing."""
    first = Seeds(7).rng("mix").random(5).tolist()
    busy = Seeds(7)
    busy.rng("arrivals").random(1000)

    assert busy.rng("mix").random(5).tolist() == first
    assert Seeds(8).rng("mix").random(5).tolist() != first
    assert Seeds(7).rng("mix2").random(5).tolist() != first


def test_streams_are_uncorrelated():
    """Neighbouring names share nothing that a correlation shows."""
    draws = np.array([Seeds(1).rng(f"request/{n}").random(4000) for n in range(8)])

    off_diagonal = np.corrcoef(draws)[~np.eye(8, dtype=bool)]

    assert np.abs(off_diagonal).max() < 0.06


def test_the_draws_of_a_seed_do_not_change_with_time():
    """Plans made last year still repeat: the first numbers are pinned."""
    assert Seeds(1).number("pixels") == PINNED
    assert 0 <= Seeds(1).number("pixels") < 2**63


def test_a_negative_seed_is_refused():
    """SeedSequence knows none."""
    with pytest.raises(ValueError, match="seed"):
        Seeds(-1)


PINNED = 3238992596994103132
