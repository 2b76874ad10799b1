"""Requests go to the prefills of their kind."""

import asyncio
import tomllib
from pathlib import Path

import pytest

from serving.config import ServeConfig
from serving.instances import Want
from serving.pairs import PairBook
from serving.pools import Pools
from serving.service import EngineEndpoint
from serving.topology import plan
from tests.serving.fake_exchange import FakeExchange
from tests.serving.rig import chat, rig, until
from tests.serving.stand_ins import FROZEN
from tests.serving.test_lifecycle import picture, with_images
from toolkit.cli.toml import to_toml
from toolkit.core.config import load, read_toml, validate
from toolkit.core.errors import EngineUnavailable, UsageFault
from toolkit.core.sample import WorkloadClass

TEXT, IMAGE = WorkloadClass.TEXT_ONLY, WorkloadClass.HIGH_RES
TWO = [
    {"name": "words", "prefills": ["prefill-0"], "classes": ["text"]},
    {"name": "pictures", "prefills": ["prefill-1"], "classes": ["image"]},
]


def configured(*pools):
    return validate(ServeConfig, {"pools": list(pools)}, "test")


def changed(number, **fields):
    return [{**pool, **(fields if index == number else {})} for index, pool in enumerate(TWO)]


def engine(name):
    return EngineEndpoint(name=name, role=name.split("-")[0], url="http://127.0.0.1:1")


def a_book(pools, prefills=2):
    names = [f"prefill-{number}" for number in range(prefills)]
    book = PairBook(map(engine, names), [engine("decode-0")], Pools(configured(*pools).pools, names))
    for name in book.engines:
        book.engine_seen(name, up=True)
    for pair in book.unproven():
        book.proven(pair)
    return book


def serves(book, workload_class):
    taken = book.take(0.0, want=Want(workload_class=workload_class))
    book.give_back(taken)
    return taken.pair.prefill.name


@pytest.mark.parametrize("until", [None, 20.0])
def test_while_the_operator_keeps_a_pool_from_serving_the_answer_says_so(until):
    """With the end of that where it is known; /readyz and `toolkit admin state` tell of the pool as well."""
    book = a_book(TWO)
    book.drain("prefill-0", until)

    refused = book.unavailable(5.0, Want(workload_class=TEXT))
    assert "pool 'words' is ready: the operator took engines out" in refused.message
    assert "drained: prefill-0)" in refused.message
    assert ("for 15 s more" in refused.message) == (until is not None)
    if until is not None:
        assert refused.retry_after_s == 15.0
    else:
        assert "only the operator knows" in refused.action
    assert {pool.name: book.is_served(pool) for pool in book.pools.all} == {"words": False, "pictures": True}

    book.engine_seen("prefill-0", up=False)
    assert "the operator" not in book.unavailable(5.0, Want(workload_class=TEXT)).message


def test_each_class_is_served_by_its_pool():
    """Whatever the load."""
    book = a_book(TWO)

    assert {serves(book, WorkloadClass.TEXT_ONLY) for _ in range(3)} == {"prefill-0"}
    assert {serves(book, one) for one in WorkloadClass if one.value not in ("text_only", "unclassified")} == {
        "prefill-1"
    }


def test_a_pool_without_a_healthy_prefill_is_unavailable_and_the_other_serves():
    """A retry has nowhere else to go either."""
    book = a_book(TWO)
    book.engine_seen("prefill-1", up=False)

    with pytest.raises(EngineUnavailable, match="of the pool 'pictures'") as refused:
        serves(book, IMAGE)
    assert refused.value.status == 503 and refused.value.retry_after_s
    assert not book.has_other([], want=Want(workload_class=IMAGE))
    assert serves(book, TEXT) == "prefill-0"


def test_a_fallback_serves_while_none_of_the_pool_does():
    """Down or drained; and no longer."""
    book = a_book(changed(1, fallback="words"))
    book.drain("prefill-1")
    assert serves(book, IMAGE) == "prefill-0"

    book.undrain("prefill-1")
    assert serves(book, IMAGE) == "prefill-1"


def test_pools_that_name_no_prefill_share_the_rest():
    """So classes have shares of the decodes without prefills of their own."""
    book = a_book([{"name": "words", "classes": ["text"]}, {"name": "pictures", "classes": ["image"]}])

    assert (
        book.pools.of_prefill("prefill-0") == ["words", "pictures"]
        and book.pools.of_prefill("decode-0") == []
    )


@pytest.mark.parametrize(
    ("pools", "said"),
    [
        (changed(0, name="Words"), "pools.0.name"),
        (changed(0, name="pictures"), "two pools are named 'pictures'"),
        (changed(0, prefills=["prefill-1"]), "prefill-1 is in two pools"),
        (changed(0, classes=["text", "high_res"]), "high_res requests are in two pools"),
        (changed(1, classes=["image_short"]), "no pool serves high_res, multi_image_long"),
        (changed(1, classes=["video"]), "pools.1.classes.0"),
        (changed(1, classes=[]), "pools.1.classes"),
        (changed(1, share=0), "pools.1.share"),
        (changed(1, fallback="pictures"), "'pictures' of 'pictures' is no other pool; those are: words"),
        (changed(1, falback="words"), "did you mean 'fallback'"),
    ],
)  # fmt: skip
def test_a_mistake_in_the_pools_is_named(pools, said):
    """Before anything is started."""
    with pytest.raises(UsageFault) as told:
        configured(*pools)
    assert said in told.value.message


@pytest.mark.parametrize(
    ("pools", "prefills", "said"),
    [
        (changed(1, prefills=["prefill-7"]), 2, "there is no 'prefill-7'; this service's prefills are prefill-0, prefill-1"),
        (TWO, 3, "prefill-2 is in no pool"),
        ([*changed(1, prefills=["prefill-1"], classes=["high_res", "image_short"]), {"name": "rest", "classes": ["multi_image_long"]}], 2, "'rest' has no prefill"),
    ],
)  # fmt: skip
def test_pools_that_do_not_fit_the_instances_are_refused_before_anything_starts(pools, prefills, said):
    """When the service is planned."""
    urls = [f"http://10.0.0.{number}:30000" for number in range(1, prefills + 1)]
    engines = {"attach_prefill": urls, "attach_decode": ["http://10.0.0.9:30000"]}
    config = validate(ServeConfig, {"pools": pools, "engine": engines}, "test")

    with pytest.raises(UsageFault, match=said):
        plan(config, dry=True)


def test_the_example_of_the_page_is_a_configuration():
    """docs/pools.md, for three prefills."""
    example = Path("docs/pools.md").read_text(encoding="utf-8").partition("```toml\n")[2].partition("```")[0]
    config = validate(ServeConfig, tomllib.loads(example), "docs/pools.md")

    pools = Pools(config.pools, [f"prefill-{number}" for number in range(3)])
    assert pools.of(TEXT).name == "words" and pools.of(IMAGE).then == {"prefill-0"}


def test_pools_are_shown_as_they_can_be_read_again(tmp_path):
    """`toolkit config show` of a configuration with [[pools]] tables."""
    page = tmp_path / "serve.toml"
    page.write_text(to_toml(configured(*TWO)), encoding="utf-8")

    assert (
        load(ServeConfig, page).pools == configured(*TWO).pools == configured(*read_toml(page)["pools"]).pools
    )


def test_a_request_of_a_dead_pool_gets_a_503_and_the_others_are_answered(tmp_path):
    """Through the whole gateway; the page tells whose prefill is whose."""

    async def scenario():
        settings = {"pools": TWO}
        async with rig(tmp_path, settings, prefill_1={}) as made:
            made.gateway.book.engine_seen("prefill-0", up=False)
            refused = await made.ask(chat())
            made.gateway.book.drain("prefill-1")
            page = await made.ask(b"", path="/readyz", method="GET")
            metrics = await made.ask(b"", path="/metrics", method="GET")
            return refused, page.json, metrics.text

    refused, page, text = asyncio.run(scenario())

    assert refused.status == 503 and refused.json["error"]["code"] == "engine_unavailable"
    assert "pool 'words'" in refused.json["error"]["message"]
    assert page["instances"]["prefill-1"] == {
        "tokens": 0,
        "weight": 1.0,
        "drained": True,
        "pools": ["pictures"],
    }
    assert 'toolkit_instance_pool{engine="prefill-1",pool="pictures"} 1.0' in text
    assert 'toolkit_instance_drained{engine="prefill-1"} 1.0' in text


def test_a_flood_of_pictures_leaves_words_their_half_of_the_decode(tmp_path):
    """Four slots, twelve pictures that hold them; as they end, words go in until both hold alike, and then pictures again."""
    pools = [{"name": "words", "classes": ["text"]}, {"name": "pictures", "classes": ["image"]}]
    settings = {"pools": pools, "schedule": {"max_in_flight": 4, "adaptive": False, "workload_share": 1}}
    patient = {"x-slo-class": "batch"}

    async def scenario():
        async with rig(tmp_path, settings, decode_0=FROZEN) as made:
            admission, calls, asked = made.gateway.admission, made.legs["decode-0"].calls, {}

            async def send(user, body):
                number = len(asked)
                exchange = FakeExchange({**body, "user": user}, headers=patient)
                asked[user] = exchange, asyncio.create_task(made.gateway.api.handle(exchange))
                await until(lambda: admission.running + admission.queued == number + 1)

            async def inside(count):
                await until(lambda: len(calls) == count)
                return [call.body["user"].partition(" ")[0] for call in calls]

            for number in range(12):
                await send(f"picture {number}", with_images(picture(), max_tokens=1000, stream=True))
            for number in range(6):
                await send(f"word {number}", chat(max_tokens=1000))
            page = (await made.ask(b"", method="GET", path="/metrics")).text
            await inside(4)
            for number in range(4):
                user = calls[number].body["user"]
                asked[user][0].hang_up()
                order = await inside(5 + number)
            for exchange, _ in asked.values():
                exchange.hang_up()
            await asyncio.gather(*(task for _, task in asked.values()))
            return order, page

    order, page = asyncio.run(scenario())

    assert order == ["picture"] * 4 + ["word", "word", "picture", "picture"]
    assert 'toolkit_pool_held_tokens{pool="words"} 0.0' in page


def test_an_image_comes_back_to_the_prefill_that_has_it(tmp_path):
    """Asked about again, in another question; counted by what chose the prefill."""

    async def scenario():
        async with rig(tmp_path, {}, prefill_1={}, prefill_2={}) as made:
            pictures = [picture(64 + 28 * number, 64) for number in range(4)]
            homes = [
                [
                    (await made.ask(with_images(one, user=str(turn)))).headers["x-served-by"]
                    for one in pictures
                ]
                for turn in range(3)
            ]
            counted = {
                by: made.metric("toolkit_pairs_taken_total", pool="all", by=by) for by in ("new", "affinity")
            }
            return homes, counted

    homes, counted = asyncio.run(scenario())

    assert homes[0] == homes[1] == homes[2]
    assert counted == {"new": 4, "affinity": 8}
