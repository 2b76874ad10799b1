"""One table of metric names."""

from prometheus_client import CollectorRegistry

from serving.telemetry import Telemetry
from toolkit.core import names


def test_every_name_is_registered_and_none_twice():
    """The emitter makes exactly the table."""
    telemetry = Telemetry(CollectorRegistry(), "1")
    exported = {
        line.split(" ")[2] for line in telemetry.render().decode().splitlines() if line.startswith("# TYPE")
    }

    assert len({metric.name for metric in names.METRICS}) == len(names.METRICS)
    assert {metric.name for metric in names.METRICS} <= exported


def test_histograms_have_an_edge_at_every_slo_threshold():
    """Attainment must not be interpolated: 0.8 s and 3 s TTFT, 50 and 100 ms ITL."""
    assert {0.8, 3.0} <= set(names.TTFT.buckets)
    assert {0.05, 0.1} <= set(names.ITL.buckets)


def test_names_follow_the_conventions():
    """Counters end in _total, times are seconds, every metric has a help text."""
    for metric in names.METRICS:
        assert metric.name.startswith("toolkit_")
        assert (metric.kind == "counter") == metric.name.endswith("_total")
        assert metric.help.endswith(".")
        assert (metric.kind == "histogram") == bool(metric.buckets)
