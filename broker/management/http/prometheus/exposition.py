"""Writing metrics down in the format that is asked for, a few samples at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Sequence
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as MetricFamily
from prometheus_client.registry import Collector

from leveret.broker.core.broker import Broker
from leveret.broker.core.slices import in_slices
from leveret.broker.management.http.prometheus.families import Family, Item

#: Objects whose samples are written at once: a millisecond's work.
_BATCH: Final = 10
_END: Final = b"# EOF\n"


class _Families(Collector):
    """Collects what has been measured already."""

    def __init__(self, families: Iterable[MetricFamily]) -> None:
        self._families = families

    def collect(self) -> Iterable[MetricFamily]:
        return self._families


class Exposition:
    """One answer's way of writing.

    Args:
        accept: The header Accept of the request.

    Attributes:
        content_type: The format: Prometheus' text, or OpenMetrics where that is accepted.
        end: What comes last.
    """

    def __init__(self, accept: str) -> None:
        self._encode, self.content_type = choose_encoder(accept)
        self.end = _END if self.content_type.startswith("application/openmetrics-text") else b""

    def text(self, families: Iterable[MetricFamily]) -> bytes:
        """Metrics with their samples."""
        registry = CollectorRegistry()
        registry.register(_Families(families))
        return self._encode(registry).removesuffix(self.end)

    async def objects(
        self, family: Family[Item], broker: Broker, vhosts: Collection[str] | None, prefix: str
    ) -> AsyncIterator[bytes]:
        """The metrics of all objects of a kind, in pieces; others have a turn in between.

        Args:
            family: The metrics.
            broker: Whose objects.
            vhosts: Those whose objects are wanted; None for all.
            prefix: Comes before all names.
        """
        columns = [[self.text([metric])] for metric in family.families((), prefix)]
        items = family.objects(broker, vhosts)
        await asyncio.sleep(0)
        async for batch in in_slices(_batches(items)):
            for column, metric in zip(columns, family.families(batch, prefix), strict=True):
                column.append(_without_comments(self.text([metric])))
        # All samples of a metric have to stand together.
        for column in columns:
            for piece in column:
                yield piece


def _batches(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), _BATCH):
        yield items[start : start + _BATCH]


def _without_comments(text: bytes) -> bytes:
    """The samples of a metric: what comes before them has been written."""
    while text.startswith(b"#"):
        text = text.partition(b"\n")[2]
    return text
