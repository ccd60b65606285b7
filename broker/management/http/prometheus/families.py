"""How metrics are declared, and made into those of prometheus_client.

Source: https://www.rabbitmq.com/docs/prometheus
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, NamedTuple, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, UnknownMetricFamily
from prometheus_client.metrics_core import Metric as MetricFamily

from leveret.broker.core.broker import Broker
from leveret.broker.management.http.prometheus.counted import Counted

Item = TypeVar("Item")
#: The virtual hosts that are asked about; None for all.
Vhosts = Collection[str] | None


class Metric(NamedTuple):
    """One metric.

    Attributes:
        name: Without its prefix; counters end in ``_total``.
        kind: Its type; ``unknown`` is what the text format calls untyped.
        help: What it says of itself.
    """

    name: str
    kind: Literal["counter", "gauge", "unknown"]
    help: str

    def family(self, prefix: str, labels: Sequence[str] = ()) -> MetricFamily:
        """It without samples yet; see add().

        Args:
            prefix: Comes before the name.
            labels: Names of its labels.
        """
        if self.kind == "counter":
            return CounterMetricFamily(prefix + self.name, self.help, labels=labels)
        if self.kind == "gauge":
            return GaugeMetricFamily(prefix + self.name, self.help, labels=labels)
        return UnknownMetricFamily(prefix + self.name, self.help, labels=labels)

    def single(self, prefix: str, value: float, **labels: str) -> MetricFamily:
        """It with one sample."""
        family = self.family(prefix, tuple(labels))
        add(family, tuple(labels.values()), value)
        return family


def counter(name: str, help_text: str) -> Metric:
    """Declare a counter."""
    return Metric(name, "counter", help_text)


def gauge(name: str, help_text: str) -> Metric:
    """Declare a gauge."""
    return Metric(name, "gauge", help_text)


def add(family: MetricFamily, labels: Sequence[str], value: float) -> None:
    """Add a sample."""
    # Their common ancestor cannot do it.
    if isinstance(family, CounterMetricFamily | GaugeMetricFamily | UnknownMetricFamily):
        family.add_metric(labels, value)


@dataclass(frozen=True)
class Family(Generic[Item]):
    """Metrics of all objects of one kind; as a whole, the sum over these objects, without labels.

    Args:
        name: What ``family=`` asks for; several may share one.
        metrics: Its metrics.
        labels: Names of the labels of an object.
        objects: All of them, in the given virtual hosts.
        identify: The labels of one, by name.
        measure: Its values, by metric; None where it has none.
        is_there: Whether it can still be measured: some time passes between listing and measuring.
        total: The sums, where they are more than those of what lives; None where there is no sum.
        prefix: Comes before all names.
    """

    name: str
    metrics: tuple[Metric, ...]
    labels: tuple[str, ...]
    objects: Callable[[Broker, Vhosts], list[Item]]
    identify: Callable[[Item], tuple[str, ...]]
    measure: Callable[[Item], Sequence[float | None]]
    is_there: Callable[[Item], bool] = lambda item: True
    total: Callable[[Counted], Sequence[float | None]] | None = None
    prefix: str = "rabbitmq_"

    def families(self, items: Sequence[Item], prefix: str) -> list[MetricFamily]:
        """Its metrics with samples of some objects.

        Args:
            items: The objects.
            prefix: Comes before all names.
        """
        made = [metric.family(prefix, self.labels) for metric in self.metrics]
        for item in items:
            if self.is_there(item):
                labels = self.identify(item)
                for family, value in zip(made, self.measure(item), strict=True):
                    if value is not None:
                        add(family, labels, value)
        return made
