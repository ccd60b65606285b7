"""Metrics of the named readers of streaming queries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.metrics_core import Metric as MetricFamily

from leveret.broker.core.broker import Broker
from leveret.broker.management.http.prometheus.families import counter, gauge

_METRICS: Final = (
    gauge("readers", "Number of named readers"),
    gauge("reader_held_bytes", "Size in bytes of the segment files that are kept for named readers alone"),
    gauge("reader_held_files", "Number of segment files that are kept for named readers alone"),
    counter("reader_unread_files_total", "Total number of segment files removed that a named reader had not read"),
    counter("readers_dropped_total", "Total number of named readers dropped because they were not seen"),
)


def reader_families(broker: Broker) -> Iterator[MetricFamily]:
    """Yield what is kept for named readers; nothing if there has never been one since the start."""
    counts = broker.stores.reader_counts
    if counts is not None and any(counts):
        for metric, value in zip(_METRICS, counts, strict=True):
            yield metric.single("leveret_", value)
