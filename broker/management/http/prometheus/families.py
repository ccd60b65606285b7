"""Declarations of metrics, and their conversion to those of prometheus_client.

Source: https://www.rabbitmq.com/docs/prometheus
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, NamedTuple, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, UnknownMetricFamily
from prometheus_client.metrics_core import Metric as MetricFamily

from leveret.broker.core.broker import Broker
from leveret.broker.core.stats.counter_totals import CounterTotals

Item = TypeVar("Item")
#: Names of the requested virtual hosts; None for all.
Vhosts = Collection[str] | None


class Metric(NamedTuple):
    """One metric.

    Attributes:
        name: Name without prefix. Names of counters end in ``_total``.
        kind: Type. ``unknown`` is called untyped in the text format.
        help: Help text.
    """

    name: str
    kind: Literal["counter", "gauge", "unknown"]
    help: str

    def family(self, prefix: str, labels: Sequence[str] = ()) -> MetricFamily:
        """Return the metric without samples; see add().

        Args:
            prefix: Prefix of the name.
            labels: Names of the labels.
        """
        if self.kind == "counter":
            return CounterMetricFamily(prefix + self.name, self.help, labels=labels)
        if self.kind == "gauge":
            return GaugeMetricFamily(prefix + self.name, self.help, labels=labels)
        return UnknownMetricFamily(prefix + self.name, self.help, labels=labels)

    def single(self, prefix: str, value: float, **labels: str) -> MetricFamily:
        """Return the metric with one sample."""
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
    # Their base class has no add_metric().
    if isinstance(family, CounterMetricFamily | GaugeMetricFamily | UnknownMetricFamily):
        family.add_metric(labels, value)


@dataclass(frozen=True)
class Family(Generic[Item]):
    """Metrics of all objects of one kind. The aggregated endpoint has their sum, without labels.

    Args:
        name: Value of ``family=`` in the query; several families may share one.
        metrics: The metrics.
        labels: Names of the labels of an object.
        objects: Returns all objects in the given virtual hosts.
        identify: Returns the labels of an object.
        measure: Returns the values of an object, one for each metric; None if it has none.
        exists: Checks whether an object still exists: it may be deleted between listing and measuring.
        total: Returns the sums, if they include deleted objects. A value of None means that there is no sum.
        prefix: Prefix of all names.
    """

    name: str
    metrics: tuple[Metric, ...]
    labels: tuple[str, ...]
    objects: Callable[[Broker, Vhosts], list[Item]]
    identify: Callable[[Item], tuple[str, ...]]
    measure: Callable[[Item], Sequence[float | None]]
    exists: Callable[[Item], bool] = lambda item: True
    total: Callable[[CounterTotals], Sequence[float | None]] | None = None
    prefix: str = "rabbitmq_"

    def families(self, items: Sequence[Item], prefix: str) -> list[MetricFamily]:
        """Return the metrics with samples of some objects.

        Args:
            items: The objects.
            prefix: Prefix of all names.
        """
        made = [metric.family(prefix, self.labels) for metric in self.metrics]
        for item in items:
            if self.exists(item):
                labels = tuple(map(_label, self.identify(item)))
                for family, value in zip(made, self.measure(item), strict=True):
                    if value is not None:
                        add(family, labels, value)
        return made


def _label(name: str) -> str:
    """Return a name with bytes that are not UTF-8 escaped, so that each object has series of its own."""
    return name if name.isascii() else name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
