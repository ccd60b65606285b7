"""Metrics of connections and channels.

Messages are counted per channel, not also per exchange and queue, so the metrics have no labels for these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from leveret.broker.core.broker import Broker
from leveret.broker.core.clients import ClientChannel, ClientConnection
from leveret.broker.core.counters.counters import ChannelCounters, ConnectionCounters
from leveret.broker.management.http.documents.clients import channel_name
from leveret.broker.management.http.prometheus.families import Family, Metric, Vhosts, counter, gauge

_CHANNEL: Final = (
    gauge("channel_consumers", "Consumers on a channel"),
    gauge("channel_messages_unacked", "Delivered but not yet acknowledged messages"),
    gauge("channel_messages_unconfirmed", "Published but not yet confirmed messages"),
    gauge("channel_messages_uncommitted", "Messages received in a transaction but not yet committed"),
    gauge("channel_acks_uncommitted", "Message acknowledgements in a transaction not yet committed"),
    gauge("consumer_prefetch", "Limit of unacknowledged messages for each consumer"),
    gauge("channel_prefetch", "Total limit of unacknowledged messages for all consumers on a channel"),
)
_PUBLISHING: Final = (
    counter("channel_messages_published_total", "Total number of messages published into an exchange on a channel"),
    counter(
        "channel_messages_confirmed_total",
        "Total number of messages published into an exchange and confirmed on the channel",
    ),
    counter(
        "channel_messages_unroutable_returned_total",
        "Total number of messages published as mandatory into an exchange and returned to the publisher as unroutable",
    ),
    counter(
        "channel_messages_unroutable_dropped_total",
        "Total number of messages published as non-mandatory into an exchange and dropped as unroutable",
    ),
)
_CONSUMING: Final = (
    counter("channel_get_ack_total", "Total number of messages fetched with basic.get in manual acknowledgement mode"),
    counter("channel_get_total", "Total number of messages fetched with basic.get in automatic acknowledgement mode"),
    counter(
        "channel_messages_delivered_ack_total",
        "Total number of messages delivered to consumers in manual acknowledgement mode",
    ),
    counter(
        "channel_messages_delivered_total",
        "Total number of messages delivered to consumers in automatic acknowledgement mode",
    ),
    counter("channel_messages_redelivered_total", "Total number of messages redelivered to consumers"),
    counter("channel_messages_acked_total", "Total number of messages acknowledged by consumers"),
    counter("channel_get_empty_total", "Total number of times basic.get operations fetched no message"),
)
_OCTETS: Final = (
    counter("connection_incoming_bytes_total", "Total number of bytes received on a connection"),
    counter("connection_outgoing_bytes_total", "Total number of bytes sent on a connection"),
)
_PACKETS: Final = (
    counter("connection_incoming_packets_total", "Total number of packets received on a connection"),
    counter("connection_outgoing_packets_total", "Total number of packets sent on a connection"),
)
_CONNECTION: Final = (
    gauge("connection_pending_packets", "Number of packets waiting to be sent on a connection"),
    gauge("connection_channels", "Channels on a connection"),
)


def _connections_in(broker: Broker, vhosts: Vhosts) -> list[ClientConnection]:
    return [each for each in broker.connections if vhosts is None or each.vhost_name in vhosts]


def _channels_in(broker: Broker, vhosts: Vhosts) -> list[ClientChannel]:
    return [channel for connection in _connections_in(broker, vhosts) for channel in connection.channels]


def _all_connections(broker: Broker, vhosts: Vhosts) -> list[ClientConnection]:
    """Return all connections: these metrics have no label for the virtual host."""
    return _connections_in(broker, None)


def _all_channels(broker: Broker, vhosts: Vhosts) -> list[ClientChannel]:
    return _channels_in(broker, None)


def _state(channel: ClientChannel) -> tuple[float, ...]:
    return (
        len(channel.consumers),
        channel.unacked_count,
        channel.unconfirmed_count,
        *channel.uncommitted,
        channel.default_prefetch,
        channel.prefetch,
    )


def _publishing(counters: ChannelCounters) -> tuple[float, ...]:
    return counters.publish, counters.confirm, counters.return_unroutable, counters.drop_unroutable


def _consuming(counters: ChannelCounters) -> tuple[float, ...]:
    return (
        counters.get,
        counters.get_no_ack,
        counters.deliver,
        counters.deliver_no_ack,
        counters.redeliver,
        counters.ack,
        counters.get_empty,
    )


def _octets(counters: ConnectionCounters) -> tuple[float, ...]:
    return counters.recv_oct, counters.send_oct


def _packets(counters: ConnectionCounters) -> tuple[float, ...]:
    return counters.recv_cnt, counters.send_cnt


def _of_channel(
    name: str, metrics: tuple[Metric, ...], measure: Callable[[ChannelCounters], Sequence[float]]
) -> Family[ClientChannel]:
    return Family(
        name,
        metrics,
        ("channel", "vhost"),
        _channels_in,
        lambda channel: (channel_name(channel), channel.client.vhost_name),
        lambda channel: measure(channel.counters),
        total=lambda counted: measure(counted.channels),
    )


def _of_connection(
    name: str, metrics: tuple[Metric, ...], measure: Callable[[ConnectionCounters], Sequence[float]]
) -> Family[ClientConnection]:
    return Family(
        name,
        metrics,
        ("channel",),
        _all_connections,
        lambda connection: (connection.name,),
        lambda connection: measure(connection.output.counters),
        total=lambda counted: measure(counted.connections),
    )


CHANNEL_FAMILIES: Final[tuple[Family[ClientChannel], ...]] = (
    Family("channel_metrics", _CHANNEL, ("channel",), _all_channels, lambda channel: (channel_name(channel),), _state),
    _of_channel("channel_exchange_metrics", _PUBLISHING, _publishing),
    _of_channel("channel_queue_metrics", _CONSUMING, _consuming),
)
#: RabbitMQ also calls the label of a connection ``channel``.
CONNECTION_FAMILIES: Final[tuple[Family[ClientConnection], ...]] = (
    _of_connection("connection_coarse_metrics", _OCTETS, _octets),
    _of_connection("connection_metrics", _PACKETS, _packets),
    Family(
        "connection_metrics",
        _CONNECTION,
        ("channel",),
        _all_connections,
        lambda connection: (connection.name,),
        lambda connection: (connection.output.pending_bytes(), len(connection.channels)),
    ),
)
