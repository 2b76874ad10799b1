"""Many large photos at once: the gateway's memory stays in its budget, everybody gets an answer, others are served."""

import asyncio

import pytest

from benchmarks.access.flood import Flood, measure


def check(found: Flood, uploads: int, memory_mb: int) -> None:
    """What holds of any flood, on a fast machine or a slow one."""
    assert found.growth_mb <= memory_mb
    sent = {name: outcome for name, outcome in found.outcomes.items() if name not in ("small image", "text")}
    assert sum(outcome.count for outcome in sent.values()) == uploads
    assert {said[:3] for outcome in found.outcomes.values() for said in outcome.said} <= {"200", "429", "504"}
    text = found.outcomes["text"]
    assert text.said["200"] >= 0.9 * text.count


@pytest.mark.slow
def test_a_flood_of_large_photos_keeps_the_budget() -> None:
    """16 of 12 MP with 200 MB. Text is never refused for them."""
    limits = ("access.cache_mb=16", "access.max_image_bytes=10000000", "gateway.max_body_bytes=16000000")
    found = asyncio.run(measure(16, 200, *limits, size=(4000, 3000)))
    print(found)
    check(found, 16, 200)


@pytest.mark.proof
@pytest.mark.timeout(600)
def test_sixty_four_photos_of_48_mp_keep_the_default_budget() -> None:
    """The article's 16 MB photo, 64 of them in one moment."""
    found = asyncio.run(measure(64, 768))
    assert all(outcome.said["200"] == outcome.count for outcome in found.outcomes.values())
    print(found)
    check(found, 64, 768)
