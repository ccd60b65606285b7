"""Metrics as those of prometheus_client.

Source: https://www.rabbitmq.com/docs/prometheus
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, UnknownMetricFamily
from prometheus_client.metrics_core import Metric as MetricFamily

from leveret.broker.management.fields import Metric

_KINDS: Final[Mapping[str, Callable[..., MetricFamily]]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "unknown": UnknownMetricFamily,
}


def counter(name: str, help_text: str) -> Metric:
    """Declare a counter."""
    return Metric(name, "counter", help_text)


def gauge(name: str, help_text: str) -> Metric:
    """Declare a gauge."""
    return Metric(name, "gauge", help_text)


def metric_family(metric: Metric, labels: Sequence[str] = (), prefix: str | None = None) -> MetricFamily:
    """Return a metric without samples; see add().

    Args:
        prefix: Prefix of the name; by default that of the metric.
    """
    name = (metric.prefix if prefix is None else prefix) + metric.name
    labels = labels if metric.by is None else (*labels, metric.by[0])
    return _KINDS[metric.kind](name, metric.help, labels=labels)


def single(metric: Metric, prefix: str, value: float, **labels: str) -> MetricFamily:
    """Return a metric with one sample."""
    family = metric_family(metric, tuple(labels), prefix)
    add(family, tuple(labels.values()), value)
    return family


def add(family: MetricFamily, labels: Sequence[str], value: float) -> None:
    """Add a sample."""
    # Their base class has no add_metric().
    if isinstance(family, CounterMetricFamily | GaugeMetricFamily | UnknownMetricFamily):
        family.add_metric(labels, value)
