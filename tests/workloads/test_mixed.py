"""The built-in profiles ask what they say, and mixed asks it as real clients do."""

from collections import Counter

import numpy as np
import pytest

from toolkit.core.classify import classify, tokens_in
from toolkit.core.sample import SloClass, WorkloadClass
from workloads.compose import compose
from workloads.population import Asking, Population, class_of
from workloads.profile import load_profile
from workloads.show import describe, spearman
from workloads.traces.catalog import trace_path
from workloads.traces.servegen import Asked, Client, RateWindow, read_servegen

pytestmark = pytest.mark.slow

NOON = 43_200.0


@pytest.fixture(scope="module")
def clients():
    return tuple(read_servegen(trace_path("servegen-mm-image")))


@pytest.fixture(scope="module")
def mixed():
    return compose(load_profile("mixed"))


@pytest.fixture(scope="module")
def text_only():
    return compose(load_profile("text-only"))


def test_mixed_scatters_ten_times_as_wide_as_text(mixed, text_only):
    """Token lengths vary at least ten times as much as those of text alone, with and without the images' tokens."""
    wide, narrow = describe(mixed).everything, describe(text_only).everything

    assert wide.prompt_tokens.variance >= 10 * narrow.prompt_tokens.variance
    assert wide.text_tokens.variance >= 10 * narrow.text_tokens.variance


def test_mixed_keeps_the_shares_of_the_trace(clients):
    """Among requests with images, the profile's weights are the clients' own shares within a point."""
    profile = load_profile("mixed")
    shares = dict(Population(clients, NOON, profile.clients.max_images).shares())
    weights = {name: mix.weight for name, mix in profile.classes.present().items()}
    for table in (shares, weights):
        del table[WorkloadClass.TEXT_ONLY]
        total = sum(table.values())
        table.update({name: value / total for name, value in table.items()})

    assert weights == pytest.approx(shares, abs=0.01)


def test_every_planned_class_is_the_rules(mixed, text_only):
    """What the plan calls a request is what the gateway will call it."""
    for request in (*mixed.requests, *text_only.requests):
        sizes = [(image.width, image.height) for image in request.images]
        assert classify(sizes, tokens_in(len(request.text.encode()))) is request.workload_class


def test_classes_have_their_own_promises(mixed):
    """Workload class and SLO class are two words, joined by the profile alone."""
    pairs = {(request.workload_class.value, request.slo_class) for request in mixed.requests}

    assert pairs == {
        ("text_only", SloClass.REALTIME),
        ("image_short", SloClass.STANDARD),
        ("multi_image_long", SloClass.STANDARD),
        ("high_res", SloClass.BATCH),
    }


def test_fields_go_together_as_clients_differ(clients):
    """Over the service, text and images are correlated, and far from perfectly; inside the widest client not at all."""
    population = Population(clients, NOON, 16)
    rng = np.random.default_rng(1)
    asked = [population.draw(rng) for _ in range(6000)]
    one = [asking for asking in asked if asking.client == 12]

    def correlation(some: list[Asking]) -> float:
        return spearman([a.text_tokens for a in some], [len(a.image_tokens) for a in some])

    assert 0.25 < correlation(asked) < 0.8
    assert abs(correlation(one)) < 0.12
    assert abs(spearman([a.text_tokens for a in one], [a.output_tokens for a in one])) < 0.12


def test_draws_follow_the_clients(clients):
    """Rates, counts and classes come out as the files have them."""
    population = Population(clients, NOON, 49)
    rng = np.random.default_rng(2)
    asked = [population.draw(rng) for _ in range(8000)]
    rates = {client.number: client.rate(NOON, NOON + 21_600) for client in clients}
    drawn = Counter(asking.client for asking in asked)
    classes = Counter(class_of(asking) for asking in asked)

    for number, rate in rates.items():
        assert drawn[number] / 8000 == pytest.approx(rate / sum(rates.values()), abs=0.015)
    for name, share in population.shares().items():
        assert classes[name] / 8000 == pytest.approx(share, abs=0.015)


def client(number: int, rate: float, images: str = "1") -> Client:
    fixed = ((50, 1.0),)
    counts = tuple((int(count), 1 / len(images.split())) for count in images.split())
    return Client(number, (RateWindow(0.0, rate, 1.0),), (Asked(0.0, fixed, fixed, counts, fixed),))


def test_a_population_needs_somebody_who_asks():
    """No rate, no window, or nothing but more images than allowed: told, not looped over."""
    assert Population([client(1, 0.0), client(2, 1.0)], 0.0, 4).draw(np.random.default_rng(1)).client == 2
    with pytest.raises(ValueError, match="no client"):
        Population([client(1, 0.0)], 0.0, 4)
    with pytest.raises(ValueError, match="no client"):
        Population([client(1, 1.0)], 600.0, 4)
    with pytest.raises(ValueError, match="more than 4 images"):
        Population([client(1, 1.0, "5 6")], 0.0, 4)
    with pytest.raises(ValueError, match="ask no high_res"):
        Population([client(1, 1.0)], 0.0, 4).draw_of(
            WorkloadClass.HIGH_RES, np.random.default_rng(1), lambda _: True
        )


def test_surge_is_eighty_two_hundred_eighty():
    """Ten minutes, five, twenty; the peak is the profile's rate; the mix is that of mixed."""
    profile = load_profile("surge", {"rate": 10.0})

    assert [(s.begin_s, s.end_s, s.rate) for s in profile.stretches()] == [
        (0.0, 600.0, 8.0),
        (600.0, 900.0, 20.0),
        (900.0, 2100.0, 8.0),
    ]
    assert profile.duration_s == 2100.0
    assert profile.classes == load_profile("mixed").classes


def test_a_surge_starts_at_once(tmp_path):
    """The rate jumps inside a second, and falls back as fast."""
    text = 'name = "s"\nrate = 50.0\n[classes.text_only]\nweight = 1\n' + "".join(
        f"[[phases]]\nduration_s = {s}\nshare_of_peak = {x}\n" for s, x in ((10, 0.8), (5, 2.0), (20, 0.8))
    )
    path = tmp_path / "s.toml"
    path.write_text(text)
    times = np.array([request.at_s for request in compose(load_profile(str(path))).requests])

    assert ((times >= 9) & (times < 10)).sum() == pytest.approx(40, abs=22)
    assert ((times >= 10) & (times < 11)).sum() == pytest.approx(100, abs=35)
    assert ((times >= 15) & (times < 16)).sum() == pytest.approx(40, abs=22)
    assert (np.diff(times) >= 0).all()


def test_soak_passes_minute_35():
    """45 minutes of the same mix."""
    profile = load_profile("soak")

    assert profile.duration_s == 2700.0
    assert profile.classes == load_profile("mixed").classes
