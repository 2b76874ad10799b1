"""Where a part of the access layer tells what it does: three calls, as Telemetry has them."""

from typing import Protocol

from toolkit.core.names import Metric


class Meter(Protocol):
    """Counts events, sets gauges, observes durations. Labels are those of the metric."""

    def count(self, metric: Metric, amount: float = 1.0, **labels: str) -> None: ...

    def gauge(self, metric: Metric, value: float, **labels: str) -> None: ...

    def observe(self, metric: Metric, value: float, **labels: str) -> None: ...


class Unmetered:
    """Tells nobody."""

    def count(self, metric: Metric, amount: float = 1.0, **labels: str) -> None:
        pass

    def gauge(self, metric: Metric, value: float, **labels: str) -> None:
        pass

    def observe(self, metric: Metric, value: float, **labels: str) -> None:
        pass
