"""The resources of the Prometheus port: metrics in the requested format, a few samples at a time, and their sums."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Final

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as MetricFamily
from prometheus_client.registry import Collector

from leveret.broker.core.broker import Broker
from leveret.broker.core.scheduling.slices import in_slices, in_slices_async, run_in_slices
from leveret.broker.core.stats.census import CounterTotals
from leveret.broker.management.http.controller import RequestContext
from leveret.broker.management.http.prometheus.broker_metrics import (
    alarm_families,
    backup_families,
    global_families,
    identity_families,
    node_families,
    object_families,
    reader_families,
    shovel_families,
)
from leveret.broker.management.http.prometheus.objects import (
    CONSUMER_COUNT,
    DETAILED_FAMILIES,
    FAMILIES,
    Family,
    Vhosts,
)
from leveret.broker.management.http.responses import accepts_gzip

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


class Totals:
    """Adds up all metrics. Remembers the values of counters, so that they never decrease.

    An object that ends may still count after its counters were added to those of ended objects.
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
        """Return the metrics of objects, without labels."""
        made = [metric for family in FAMILIES for metric in await family.totals(self._broker, counted)]
        return self._keep_monotonic(made)

    def of_messages(self, counted: CounterTotals) -> list[MetricFamily]:
        """Return the metrics by protocol."""
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


_PREFIX: Final = "rabbitmq_"
#: Pieces are collected up to this size in bytes and sent together.
_CHUNK: Final = 65_536


class Metrics:
    """The resources below ``/metrics``. The broker is measured with each request."""

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self._totals = Totals(context.broker)

    def routes(self) -> list[web.RouteDef]:
        """Return the paths and their handlers."""
        found: list[web.RouteDef] = []
        for path, handler in (
            ("/metrics", self._default),
            ("/metrics/per-object", self._per_object),
            ("/metrics/detailed", self._detailed),
            ("/metrics/{registry}", _unknown),
        ):
            pattern = f"{path}{{slash:/?}}"
            found += [web.head(pattern, _no_content), web.get(pattern, handler, allow_head=False)]
        return found

    async def _default(self, request: web.Request) -> web.StreamResponse:
        if self._context.settings.prometheus.return_per_object_metrics:
            return await self._per_object(request)
        return await _send(request, self._aggregated_text)

    async def _per_object(self, request: web.Request) -> web.StreamResponse:
        return await _send(request, self._per_object_text)

    async def _detailed(self, request: web.Request) -> web.StreamResponse:
        wanted, vhosts = set(request.query.getall("family", ())), request.query.getall("vhost", None)
        return await _send(request, lambda exposition: self._detailed_text(exposition, wanted, vhosts))

    async def _aggregated_text(self, exposition: Exposition) -> AsyncIterator[bytes]:
        counted = await self._totals.count()
        for piece in self._common(exposition, counted):
            yield piece
        for family in await self._totals.of_objects(counted):
            yield exposition.text([family])
        for family in self._totals.of_messages(counted):
            yield exposition.text([family])
        yield exposition.text(identity_families(self._context, "aggregated"))

    async def _per_object_text(self, exposition: Exposition) -> AsyncIterator[bytes]:
        counted = await self._totals.count()
        for common in self._common(exposition, counted):
            yield common
        for family in FAMILIES:
            async for piece in exposition.objects(family, self._context.broker):
                yield piece
        for single in self._totals.of_messages(counted):
            yield exposition.text([single])
        yield exposition.text(identity_families(self._context, "per-object"))

    async def _detailed_text(self, exposition: Exposition, wanted: set[str], vhosts: Vhosts) -> AsyncIterator[bytes]:
        for group, single in node_families(self._context, f"{_PREFIX}detailed_"):
            if group in wanted:
                yield exposition.text([single])
        families = [family for family in FAMILIES if family.name in wanted]
        if CONSUMER_COUNT.name in wanted and "queue_metrics" not in wanted:
            families.append(CONSUMER_COUNT)
        for family in families:
            async for piece in exposition.objects(family, self._context.broker, vhosts, "detailed_"):
                yield piece
        for family in DETAILED_FAMILIES:
            if family.name in wanted:
                async for piece in exposition.objects(family, self._context.broker, vhosts):
                    yield piece
        yield exposition.text(identity_families(self._context, "detailed"))

    def _common(self, exposition: Exposition, counted: CounterTotals) -> Iterator[bytes]:
        """Yield the metrics of the node and the totals."""
        single = [family for _, family in node_families(self._context, _PREFIX)]
        for family in (
            *alarm_families(self._context.broker),
            *single,
            *object_families(self._context, counted),
            *reader_families(self._context.broker),
            *backup_families(self._context.backups),
            *shovel_families(self._context.shovels),
        ):
            yield exposition.text([family])
        if self._context.replication is not None:
            for lines in self._context.replication.metrics():
                yield lines.encode()


async def _no_content(request: web.Request) -> web.Response:
    return web.Response(status=204)


async def _unknown(request: web.Request) -> web.Response:
    return web.Response(status=404, text="Unknown Registry")


async def _send(request: web.Request, pieces_in: Callable[[Exposition], AsyncIterator[bytes]]) -> web.StreamResponse:
    """Send a long text while it is being created."""
    exposition = Exposition(request.headers.get("accept", ""))
    response = web.StreamResponse(headers={"content-type": exposition.content_type})
    if accepts_gzip(request):
        response.enable_compression(web.ContentCoding.gzip)
    await response.prepare(request)
    chunk = bytearray()
    async for piece in in_slices_async(pieces_in(exposition)):
        chunk += piece
        if len(chunk) >= _CHUNK:
            await response.write(bytes(chunk))
            chunk.clear()
    await response.write(bytes(chunk) + exposition.end)
    await response.write_eof()
    return response
