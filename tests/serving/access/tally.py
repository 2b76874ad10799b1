"""A meter that tests read."""

from serving.access.meter import Meter
from toolkit.core.names import Metric


class Tally(Meter):
    """What was metered: counts by metric and labels, gauges by their greatest and latest value."""

    def __init__(self) -> None:
        self.counts: dict[str, float] = {}
        self.gauges: dict[str, float] = {}
        self.greatest: dict[str, float] = {}
        self.observed: list[tuple[str, float]] = []

    def count(self, metric: Metric, amount: float = 1.0, **labels: str) -> None:
        key = self._key(metric, labels)
        self.counts[key] = self.counts.get(key, 0.0) + amount

    def gauge(self, metric: Metric, value: float, **labels: str) -> None:
        key = self._key(metric, labels)
        self.gauges[key] = value
        self.greatest[key] = max(value, self.greatest.get(key, value))

    def observe(self, metric: Metric, value: float, **labels: str) -> None:
        self.observed.append((self._key(metric, labels), value))

    def _key(self, metric: Metric, labels: dict[str, str]) -> str:
        assert set(labels) == set(metric.labels)
        return " ".join([metric.name, *labels.values()])
