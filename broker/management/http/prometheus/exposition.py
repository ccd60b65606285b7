"""Encodes metrics in the requested format, a few samples at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Sequence
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as MetricFamily
from prometheus_client.registry import Collector

from leveret.broker.core.broker import Broker
from leveret.broker.core.scheduling.slices import in_slices
from leveret.broker.management.http.prometheus.objects import Family

#: Objects whose samples are encoded in one step, which takes a millisecond.
_BATCH: Final = 10
_END: Final = b"# EOF\n"


class _Families(Collector):
    """Collector of metrics that have already been measured."""

    def __init__(self, families: Iterable[MetricFamily]) -> None:
        self._families = families

    def collect(self) -> Iterable[MetricFamily]:
        return self._families


class Exposition:
    """Encoder of one response.

    Attributes:
        content_type: The format: Prometheus' text format, or OpenMetrics if the client accepts it.
        end: The end of the response.
    """

    def __init__(self, accept: str) -> None:
        self._encode, self.content_type = choose_encoder(accept)
        self.end = _END if self.content_type.startswith("application/openmetrics-text") else b""

    def text(self, families: Iterable[MetricFamily]) -> bytes:
        """Encode metrics with their samples."""
        registry = CollectorRegistry()
        registry.register(_Families(families))
        return self._encode(registry).removesuffix(self.end)

    async def objects(
        self, family: Family, broker: Broker, vhosts: Collection[str] | None = None, infix: str = ""
    ) -> AsyncIterator[bytes]:
        """Encode the metrics of all objects of a kind in pieces; other connections are served in between.

        Args:
            vhosts: Virtual hosts of the objects; None for all.
            infix: What follows the prefix of all names.
        """
        columns = [[self.text([metric])] for metric in family.families((), infix)]
        items = family.objects(broker, vhosts)
        await asyncio.sleep(0)
        async for batch in in_slices(_batches(items)):
            for column, metric in zip(columns, family.families(batch, infix), strict=True):
                column.append(_without_comments(self.text([metric])))
        # The format requires all samples of a metric to be adjacent.
        for column in columns:
            for piece in column:
                yield piece


def _batches(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), _BATCH):
        yield items[start : start + _BATCH]


def _without_comments(text: bytes) -> bytes:
    """Return the samples of a metric without help and type, which have already been sent."""
    while text.startswith(b"#"):
        text = text.partition(b"\n")[2]
    return text
