"""Sums of all metrics over existing and deleted objects."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from prometheus_client.metrics_core import Metric as MetricFamily

from leveret.broker.core.broker import Broker
from leveret.broker.core.scheduling.slices import run_in_slices
from leveret.broker.core.stats.census import CounterTotals
from leveret.broker.management.http.prometheus.global_messages import global_families
from leveret.broker.management.http.prometheus.objects import FAMILIES


class Totals:
    """Adds up all metrics. Remembers the values of counters, so that they never decrease.

    An object that ends may still count after its counters were added to those of ended objects.

    Args:
        broker: The broker.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._previous: dict[tuple[str, tuple[str, ...]], float] = {}

    async def count(self) -> CounterTotals:
        """Add up all counters; other connections are served in between."""
        counted = CounterTotals(self._broker)
        await asyncio.sleep(0)
        await run_in_slices(counted.steps())
        return counted

    async def of_objects(self, counted: CounterTotals) -> list[MetricFamily]:
        """Return the metrics of objects, without labels.

        Args:
            counted: From count().
        """
        made = [metric for family in FAMILIES for metric in await family.totals(self._broker, counted)]
        return self._keep_monotonic(made)

    def of_messages(self, counted: CounterTotals) -> list[MetricFamily]:
        """Return the metrics by protocol.

        Args:
            counted: From count().
        """
        return self._keep_monotonic(global_families(counted))

    def _keep_monotonic(self, families: Iterable[MetricFamily]) -> list[MetricFamily]:
        made = list(families)
        for family in made:
            if family.type == "counter":
                for place, sample in enumerate(family.samples):
                    key = sample.name, tuple(sample.labels.values())
                    value = self._previous[key] = max(sample.value, self._previous.get(key, 0.0))
                    family.samples[place] = sample._replace(value=value)
        return made
