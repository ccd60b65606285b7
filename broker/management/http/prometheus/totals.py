"""Sums of all metrics over existing and deleted objects."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from operator import add as plus
from typing import Any, Final

from prometheus_client.metrics_core import Metric as MetricFamily

from leveret.broker.core.broker import Broker
from leveret.broker.core.scheduling.slices import in_slices, run_in_slices
from leveret.broker.core.stats.counter_totals import CounterTotals
from leveret.broker.management.http.prometheus.clients import CHANNEL_FAMILIES, CONNECTION_FAMILIES
from leveret.broker.management.http.prometheus.exchanges import EXCHANGE_FAMILIES
from leveret.broker.management.http.prometheus.families import Family, add
from leveret.broker.management.http.prometheus.global_messages import global_families
from leveret.broker.management.http.prometheus.queues import QUEUE_FAMILIES, loss_totals

#: Metrics of objects that both endpoints show.
OBJECT_FAMILIES: Final[tuple[Family[Any], ...]] = (
    *QUEUE_FAMILIES,
    *CHANNEL_FAMILIES,
    *CONNECTION_FAMILIES,
    *EXCHANGE_FAMILIES,
)


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
        made = []
        for family in OBJECT_FAMILIES:
            values = await self._sums(family) if family.total is None else family.total(counted)
            for metric, value in zip(family.metrics, values, strict=True):
                single = metric.family(family.prefix)
                if value is not None:
                    add(single, (), value)
                made.append(single)
        return self._keep_monotonic([*made, *loss_totals(counted)])

    def of_messages(self, counted: CounterTotals) -> list[MetricFamily]:
        """Return the metrics by protocol.

        Args:
            counted: From count().
        """
        return self._keep_monotonic(global_families(counted))

    async def _sums(self, family: Family[Any]) -> Sequence[float]:
        sums: Sequence[float] = (0.0,) * len(family.metrics)
        async for item in in_slices(family.objects(self._broker, None)):
            if family.exists(item):
                sums = list(map(plus, sums, (value or 0.0 for value in family.measure(item))))
        return sums

    def _keep_monotonic(self, families: Iterable[MetricFamily]) -> list[MetricFamily]:
        made = list(families)
        for family in made:
            if family.type == "counter":
                for place, sample in enumerate(family.samples):
                    key = sample.name, tuple(sample.labels.values())
                    value = self._previous[key] = max(sample.value, self._previous.get(key, 0.0))
                    family.samples[place] = sample._replace(value=value)
        return made
