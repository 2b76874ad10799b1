"""GPU ids and their split into instances."""

import pytest

from serving.engines.gpus import GpuGroup, parse_gpus, share, split
from toolkit.core.errors import UsageFault


@pytest.mark.parametrize(
    ("text", "ids"),
    [("0-3", (0, 1, 2, 3)), ("0,2", (0, 2)), ("5", (5,)), ("0, 4-5", (0, 4, 5)), ("3-3", (3,))],
)
def test_ids_are_read_as_people_write_them(text: str, ids: tuple[int, ...]) -> None:
    """Ranges, lists and both together."""
    assert parse_gpus(text, "here") == ids


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "write GPU ids as 0-3"),
        ("a", "write GPU ids"),
        ("0-", "write GPU ids"),
        ("-1", "write GPU ids"),
        ("0,,1", "write GPU ids"),
        ("3-0", "write 0-3"),
        ("0-2,2", "GPU 2 is named twice"),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, says: str) -> None:
    """The message names the option and what to write."""
    with pytest.raises(UsageFault, match=says) as raised:
        parse_gpus(text, "engine.prefill.gpus")

    assert raised.value.message.startswith("engine.prefill.gpus")


def test_ids_are_shared_out_by_tp() -> None:
    """Four ids with tp 2 make two instances."""
    prefill, decode = share("0-3", "4,6", 2)

    assert prefill == (GpuGroup(0, 1, (0, 1)), GpuGroup(2, 1, (2, 3)))
    assert decode == (GpuGroup(4, 2, (4, 6)),)


@pytest.mark.parametrize(
    ("prefill", "decode", "tp", "says"),
    [
        ("0-2", "3", 2, "3 GPUs, which tp = 2 does not divide"),
        ("0-3", "3-4", 1, "GPU 3 is given to prefill and to decode"),
        ("0,1,3,4", "5-8", 4, "not evenly spaced"),
        ("1,0", "2-3", 2, "not evenly spaced"),
    ],
)
def test_ids_that_cannot_be_shared_out_are_refused(prefill: str, decode: str, tp: int, says: str) -> None:
    """Before anything is started."""
    with pytest.raises(UsageFault, match=says):
        share(prefill, decode, tp)


def test_single_gpus_need_no_order() -> None:
    """With tp 1 each id stands for itself."""
    assert [group.first for group in split((3, 1), 1, "here")] == [3, 1]
