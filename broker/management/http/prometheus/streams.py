"""Metrics of streams, which RabbitMQ has only for its stream protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

from leveret.broker.core.broker import Broker
from leveret.broker.core.clients import ClientConsumer
from leveret.broker.core.queues.consumer_names import ConsumerName
from leveret.broker.core.queues.consumers import QueueConsumer
from leveret.broker.core.queues.stream_queue import StreamQueue
from leveret.broker.management.http.documents.clients import channel_name
from leveret.broker.management.http.prometheus.families import Family, Vhosts, counter, gauge

_PREFIX: Final = "leveret_"
_STREAMS: Final = (
    gauge("stream_first_offset", "Offset of the first message of a stream; of the next one if it is empty"),
    gauge("stream_next_offset", "Offset that the next message of a stream gets"),
    gauge("stream_bytes", "Size in bytes of the files of a stream"),
    gauge("stream_files", "Number of files of a stream"),
    counter("stream_retention_removed_total", "Total number of messages that the limits of a stream have removed"),
)
_NAMES: Final = (
    gauge("stream_name_next_offset", "Offset of the first message that a consumer name has not acknowledged"),
    gauge("stream_name_lag", "Number of messages of a stream from there on"),
    counter(
        "stream_name_missed_total", "Total number of messages that retention removed before a consumer name had them"
    ),
)
_LAG: Final = (gauge("stream_consumer_lag", "Number of messages that a consumer of a stream has not got yet"),)


def _streams_in(broker: Broker, vhosts: Vhosts) -> list[StreamQueue]:
    """Return the streams of some virtual hosts."""
    return [
        queue
        for vhost in broker.vhosts.values()
        if vhosts is None or vhost.name in vhosts
        for queue in vhost.queues.values()
        if isinstance(queue, StreamQueue)
    ]


def _consumers_in(broker: Broker, vhosts: Vhosts) -> list[tuple[StreamQueue, QueueConsumer]]:
    """Return the consumers of streams of some virtual hosts."""
    return [(stream, consumer) for stream in _streams_in(broker, vhosts) for consumer in stream.consumers]


def _names_in(broker: Broker, vhosts: Vhosts) -> list[tuple[StreamQueue, ConsumerName]]:
    """Return the consumer names of streams of some virtual hosts."""
    return [(stream, name) for stream in _streams_in(broker, vhosts) for name in stream.names.by_name.values()]


def _identify(stream: StreamQueue) -> tuple[str, ...]:
    return stream.vhost_name, stream.name


def _exists(stream: StreamQueue) -> bool:
    return not stream.deleted


def _measure(stream: StreamQueue) -> Sequence[float]:
    figures = stream.figures()
    return *stream.stream.offsets, figures.disk_bytes, figures.segments, stream.counters.outlived


def _identify_consumer(item: tuple[StreamQueue, QueueConsumer]) -> tuple[str, ...]:
    stream, consumer = item
    return *_identify(stream), channel_name(cast("ClientConsumer", consumer).channel), consumer.tag


def _measure_name(item: tuple[StreamQueue, ConsumerName]) -> Sequence[float]:
    stream, name = item
    return *stream.readers.distance(name.next), name.missed


#: Only per stream: a sum of offsets would be meaningless.
STREAM_FAMILIES: Final[tuple[Family[Any], ...]] = (
    Family("stream_metrics", _STREAMS, ("vhost", "queue"), _streams_in, _identify, _measure, _exists, prefix=_PREFIX),
    Family(
        "stream_consumer_metrics",
        _LAG,
        ("vhost", "queue", "channel", "consumer_tag"),
        _consumers_in,
        _identify_consumer,
        lambda item: (item[0].readers.place_of(item[1])[1],),
        lambda item: not item[0].deleted,
        prefix=_PREFIX,
    ),
    Family(
        "stream_name_metrics",
        _NAMES,
        ("vhost", "queue", "consumer_name"),
        _names_in,
        lambda item: (*_identify(item[0]), item[1].name),
        _measure_name,
        lambda item: not item[0].deleted,
        prefix=_PREFIX,
    ),
)
