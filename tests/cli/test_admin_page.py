"""What `toolkit admin state` shows of a gateway that is in trouble."""

from toolkit.cli.admin_page import state_page

ENGINES = [("prefill-0", ["words"]), ("prefill-1", ["pictures"]), ("decode-0", [])]


def a_state(**other):
    """Two pools, nothing wrong."""
    return {
        "gateway": {
            "url": "http://g",
            "model": "m",
            "ready": True,
            "stopping": False,
            "open_requests": 0,
            "preparing": 0,
            "queued": 0,
            "queued_by_class": [],
            "in_flight": 0,
            "in_flight_limit": 64,
            "retries_left": 3,
        }
        | other.pop("gateway", {}),
        "instances": [
            {"name": name, "up": True, "drained": False, "weight": 1.0, "requests": 0, "tokens": 0, "pools": pools}
            for name, pools in ENGINES
        ],
        "pools": [{"name": name, "held_tokens": 7, "prefills": [], "served": True} for name in ("words", "pictures")],
        "kv": {"binding": True, "lacking": 0, "pools": []},
        "shared": None,
        "pairs": [],
        "stores": {},
        "settings": {},
        "configured": {},
        "ending": [],
    } | other  # fmt: skip


def test_it_says_what_requests_wait_for_and_which():
    """With slots free, KV is what lacks."""
    told = state_page(
        a_state(
            gateway={
                "queued": 8,
                "in_flight": 4,
                "queued_by_class": [{"workload_class": "high_res", "slo_class": "batch", "queued": 8}],
            },
            kv={"binding": True, "lacking": 4, "pools": []},
        )
    )

    assert "8 queued (4 for KV), 4 of 64 in flight" in told
    assert "queued: 8 high_res / batch" in told
    assert "KV" not in state_page(a_state())


def test_a_pool_that_nobody_serves_is_in_the_first_line():
    """The service is ready for the others, which is not enough to know."""
    pools = [
        {"name": "words", "held_tokens": 0, "prefills": ["prefill-0"], "served": False},
        {"name": "pictures", "held_tokens": 7, "prefills": ["prefill-1"], "served": True},
    ]

    lines = state_page(a_state(pools=pools)).splitlines()

    assert lines[0].endswith("ready, but NOBODY SERVES pool words")
    assert "pool pictures: 7 tokens held in decodes, served" in lines
    assert "prefill-0  up, pool words, weight 1, 0 requests, 0 tokens" in lines


def test_pairs_that_are_out_or_suspect_are_named():
    """Both engines may be up all the same."""
    pairs = [
        {"prefill": f"prefill-{number}", "decode": "decode-0", "in_rotation": good, "suspect": not number, "serves": good}
        for number, good in enumerate((True, False))
    ]  # fmt: skip

    told = state_page(a_state(pairs=pairs))

    assert "prefill-0 + decode-0: suspect" in told
    assert "prefill-1 + decode-0: OUT of rotation" in told


def test_what_it_may_have_of_shared_pools_is_shown():
    """With how many it shares, and by what right."""
    shared = {"standing": "granted", "gateways": 2, "tokens": {"decode-1": 20, "decode-0": 10}}

    told = state_page(a_state(shared=shared))

    assert "shared pools: granted, 2 gateways; this one may lease 10 of decode-0, 20 of decode-1" in told
