"""The metrics of single objects and their sums, from the tables of fields.

Source: https://www.rabbitmq.com/docs/prometheus
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import add as plus
from operator import attrgetter
from typing import Any, Final, cast

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, UnknownMetricFamily
from prometheus_client.metrics_core import Metric as MetricFamily

from leveret.broker.core.broker import Broker
from leveret.broker.core.clients import ClientChannel, ClientConnection, ClientConsumer, channel_name
from leveret.broker.core.exchanges.base import Exchange
from leveret.broker.core.exchanges.types import DeduplicatingExchange, DelayedExchange
from leveret.broker.core.queues.consumer_names import ConsumerName
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.queues.stream_queue import StreamQueue
from leveret.broker.core.scheduling.slices import in_slices
from leveret.broker.core.stats.census import CounterTotals
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.broker.management import fields
from leveret.broker.management.fields import DETAILED, NO_TOTAL, PER_OBJECT, SUM, Metric, Table, metrics_of
from leveret.broker.management.http.documents.clients import (
    ChannelView,
    ConnectionView,
    ConsumerNameView,
    ConsumerView,
)
from leveret.broker.management.http.documents.queues import QueueView
from leveret.broker.management.http.documents.topology import ExchangeView, VirtualHostView
from leveret.broker.management.http.documents.views import values_of

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


#: Names of the requested virtual hosts; None for all.
Vhosts = Collection[str] | None


@dataclass(frozen=True)
class Family:
    """Metrics of all objects of one kind that are requested together.

    Args:
        name: Value of ``family=`` in the query.
        metrics: The metrics with the attributes that they are read from.
        view: Returns the view of an object, which has the attributes.
        exists: Checks whether an object still exists: it may be deleted between listing and measuring.
    """

    name: str
    metrics: tuple[tuple[Metric, str], ...]
    labels: tuple[str, ...]
    objects: Callable[[Broker, Vhosts], list[Any]]
    view: Callable[[Any], object]
    identify: Callable[[Any], tuple[str, ...]]
    exists: Callable[[Any], bool]

    def families(self, items: Iterable[Any], infix: str = "") -> list[MetricFamily]:
        """Return the metrics with samples of some objects. An attribute of None makes none.

        Args:
            infix: What follows the prefix of all names.
        """
        made = [metric_family(metric, self.labels, metric.prefix + infix) for metric, _ in self.metrics]
        read = values_of(*(source for _, source in self.metrics))
        for item in items:
            if self.exists(item):
                labels = tuple(map(_label, self.identify(item)))
                for family, (metric, _), value in zip(made, self.metrics, read(self.view(item)), strict=True):
                    if metric.by is not None:
                        for key in metric.by[1]:
                            add(family, (*labels, key), value[key])
                    elif value is not None:
                        add(family, labels, value)
        return made

    async def totals(self, broker: Broker, counted: CounterTotals) -> list[MetricFamily]:
        """Return the sums of the metrics, without labels."""
        summed = [place for place, (metric, _) in enumerate(self.metrics) if metric.total == SUM]
        sums = dict(zip(summed, await self._sums(broker, [self.metrics[place][1] for place in summed]), strict=True))
        made = []
        for place, (metric, _) in enumerate(self.metrics):
            if metric.total in (PER_OBJECT, DETAILED):
                continue
            family = metric_family(metric)
            if metric.total == SUM:
                add(family, (), sums[place])
            elif metric.total != NO_TOTAL:
                value = attrgetter(metric.total)(counted)
                for labels in [()] if metric.by is None else [(key,) for key in metric.by[1]]:
                    add(family, labels, value[labels[0]] if labels else value)
            made.append(family)
        return made

    async def _sums(self, broker: Broker, sources: Sequence[str]) -> Sequence[float]:
        sums: Sequence[float] = (0.0,) * len(sources)
        if sources:
            read = values_of(*sources)
            async for item in in_slices(self.objects(broker, None)):
                if self.exists(item):
                    sums = list(map(plus, sums, (value or 0.0 for value in read(self.view(item)))))
        return sums


def _label(name: str) -> str:
    """Return a name with bytes that are not UTF-8 escaped, so that each object has series of its own."""
    return name if name.isascii() else name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _vhosts_in(broker: Broker, vhosts: Vhosts) -> list[VirtualHost]:
    return [vhost for vhost in broker.vhosts.values() if vhosts is None or vhost.name in vhosts]


def _queues_in(broker: Broker, vhosts: Vhosts) -> list[Queue]:
    return [queue for vhost in _vhosts_in(broker, vhosts) for queue in vhost.queues.values()]


def _streams_in(broker: Broker, vhosts: Vhosts) -> list[StreamQueue]:
    return [queue for queue in _queues_in(broker, vhosts) if isinstance(queue, StreamQueue)]


def _exchanges_in(broker: Broker, vhosts: Vhosts) -> list[Exchange]:
    return [exchange for vhost in _vhosts_in(broker, vhosts) for exchange in vhost.topology.exchanges.values()]


def _connections_in(broker: Broker, vhosts: Vhosts) -> list[ClientConnection]:
    return [each for each in broker.connections if vhosts is None or each.vhost_name in vhosts]


def _channels_in(broker: Broker, vhosts: Vhosts) -> list[ClientChannel]:
    return [channel for connection in _connections_in(broker, vhosts) for channel in connection.channels]


def _delayed_in(broker: Broker, vhosts: Vhosts) -> list[Exchange]:
    return [
        exchange
        for exchange in _exchanges_in(broker, vhosts)
        if isinstance(exchange, DelayedExchange) and exchange.waiting is not None
    ]


def _deduplicating_in(broker: Broker, vhosts: Vhosts) -> list[Exchange]:
    return [each for each in _exchanges_in(broker, vhosts) if isinstance(each.router(), DeduplicatingExchange)]


def _consumers_in(broker: Broker, vhosts: Vhosts) -> list[ClientConsumer]:
    return [cast("ClientConsumer", consumer) for stream in _streams_in(broker, vhosts) for consumer in stream.consumers]


def _names_in(broker: Broker, vhosts: Vhosts) -> list[tuple[StreamQueue, ConsumerName]]:
    return [(stream, name) for stream in _streams_in(broker, vhosts) for name in stream.names.by_name.values()]


def _families(
    table: Table,
    labels: tuple[str, ...],
    listed: Mapping[tuple[str, ...], Callable[[Broker, Vhosts], list[Any]]],
    view: Callable[[Any], object],
    identify: Callable[[Any], tuple[str, ...]],
    exists: Callable[[Any], bool] = lambda item: True,
    only: tuple[str, ...] = (),
) -> Iterator[Family]:
    """Yield the families of a table.

    Args:
        listed: What returns the objects, by Field.of; with the key () for all others.
        only: Names of the families; () for all.
    """
    found: dict[str, list[tuple[Metric, str]]] = {}
    objects = {}
    for field, metric in metrics_of(table):
        if not only or metric.family in only:
            found.setdefault(metric.family, []).append((metric, metric.source or field.source))
            objects[metric.family] = listed.get(field.of, listed[()])
    for name, metrics in found.items():
        yield Family(name, tuple(metrics), _LABELS.get(name, labels), objects[name], view, identify, exists)


#: Other labels where RabbitMQ counts what was published to queues.
_LABELS: Final = {"channel_queue_exchange_metrics": ("queue_vhost", "queue")}
_BY_CHANNEL: Final = ("channel_exchange_metrics", "channel_queue_metrics")
#: All families. RabbitMQ calls the label of a connection ``channel``, too. Metrics without a label for the virtual host
#: are those of all virtual hosts.
FAMILIES: Final[tuple[Family, ...]] = (
    *_families(
        fields.QUEUE,
        ("vhost", "queue"),
        {(): _queues_in, ("stream",): _streams_in},
        QueueView,
        lambda queue: (queue.vhost_name, queue.name),
        lambda queue: not queue.deleted,
    ),
    *_families(
        fields.CHANNEL,
        ("channel",),
        {(): lambda broker, vhosts: _channels_in(broker, None)},
        ChannelView,
        lambda channel: (channel_name(channel),),
        only=("channel_metrics",),
    ),
    *_families(
        fields.CHANNEL,
        ("channel", "vhost"),
        {(): _channels_in},
        ChannelView,
        lambda channel: (channel_name(channel), channel.client.vhost_name),
        only=_BY_CHANNEL,
    ),
    *_families(
        fields.CONNECTION,
        ("channel",),
        {(): lambda broker, vhosts: list(broker.connections)},
        ConnectionView,
        lambda connection: (connection.name,),
    ),
    *_families(
        fields.EXCHANGE,
        ("vhost", "exchange"),
        {(): _exchanges_in, ("delayed",): _delayed_in, ("deduplicating",): _deduplicating_in},
        ExchangeView,
        lambda exchange: (exchange.vhost_name, exchange.name),
        lambda exchange: not ExchangeView(exchange).deleted,
        only=("exchange_deduplication", "exchange_delayed"),
    ),
    *_families(
        fields.CONSUMER,
        ("vhost", "queue", "channel", "consumer_tag"),
        {(): _consumers_in},
        ConsumerView,
        lambda consumer: (consumer.queue.vhost_name, consumer.queue.name, channel_name(consumer.channel), consumer.tag),
        lambda consumer: not consumer.queue.deleted,
    ),
    *_families(
        fields.CONSUMER_NAME,
        ("vhost", "queue", "consumer_name"),
        {(): _names_in},
        lambda item: ConsumerNameView(*item),
        lambda item: (item[0].vhost_name, item[0].name, item[1].name),
        lambda item: not item[0].deleted,
    ),
)
#: Those that only the detailed endpoint has.
DETAILED_FAMILIES: Final[tuple[Family, ...]] = (
    *_families(fields.VHOST, ("vhost",), {(): _vhosts_in}, VirtualHostView, lambda vhost: (vhost.name,)),
    *_families(
        fields.EXCHANGE,
        ("vhost", "exchange", "type"),
        {(): _exchanges_in},
        ExchangeView,
        lambda exchange: (exchange.vhost_name, exchange.name, exchange.type_name),
        only=("exchange_names", "exchange_bindings"),
    ),
)
#: The part of queue_metrics that is cheap to measure.
CONSUMER_COUNT: Final = next(
    replace(family, name="queue_consumer_count", metrics=(measured,))
    for family in FAMILIES
    for measured in family.metrics
    if measured[0].name == "queue_consumers"
)
