"""Connections, channels and consumers as JSON."""

from __future__ import annotations

from typing import Any, Final, cast

from leveret.broker.core.clients import (
    ClientChannel,
    ClientConnection,
    ClientConsumer,
    ClientIdentity,
    channel_name,
    client_provided_name,
)
from leveret.broker.core.counters.counters import ChannelCounters, ConnectionCounters
from leveret.broker.core.json_values import table_to_json
from leveret.broker.core.queues.consumer_names import ConsumerName
from leveret.broker.core.queues.queue import QueueConsumer
from leveret.broker.core.queues.stream_queue import StreamQueue
from leveret.broker.management.fields import CHANNEL, CONNECTION, CONSUMER, CONSUMER_NAME
from leveret.broker.management.http.documents.views import document_maker, iso_time, sort_keys
from leveret.broker.management.http.statistics import Rates, delivery_numbers, message_stats, numbers, publish_numbers

_DATA: Final = numbers(ConnectionCounters.FIELDS, **{field.name: field.rate for field in CONNECTION if field.rate})
_MESSAGES: Final = (publish_numbers(ChannelCounters.FIELDS), delivery_numbers(ChannelCounters.FIELDS))


class ConnectionView:
    """The attributes of a connection that the fields of CONNECTION are read from.

    Args:
        alarmed: Whether a resource alarm is set, which blocks the connection when it publishes.
    """

    __slots__ = ("_alarmed", "client", "counters", "node")

    def __init__(self, client: ClientConnection, node: str = "", alarmed: bool = False) -> None:
        self.client = client
        self.counters = client.output.counters
        self.node = node
        self._alarmed = alarmed

    client_properties = property(lambda self: table_to_json(self.client.client_properties))
    tls = property(lambda self: self.client.tls or _NoTls)

    @property
    def user_provided_name(self) -> str | None:
        """The client-provided connection name."""
        name = self.client_properties.get("connection_name")
        return name if isinstance(name, str) else None

    @property
    def state(self) -> str:
        """Whether an alarm blocks it."""
        return "blocked" if self.client.blocked else "blocking" if self._alarmed else "running"


class _NoTls:
    """What an unencrypted connection has of TLS."""

    protocol = cipher = subject = issuer = validity = None


class ChannelView:
    """The attributes of a channel that the fields of CHANNEL are read from.

    Args:
        rates: Rates of the request, for a document.
    """

    __slots__ = ("_rates", "channel", "client", "node")

    def __init__(self, channel: ClientChannel, node: str = "", rates: Rates | None = None) -> None:
        self.channel = channel
        self.client = channel.client
        self.node = node
        self._rates = rates

    name = property(lambda self: channel_name(self.channel))
    connection_details = property(lambda self: connection_details(self.client))
    user_provided_name = property(lambda self: client_provided_name(self.client) or None)

    @property
    def idle_since(self) -> str | None:
        """When something has happened last."""
        since = self.channel.counters.idle_since
        return iso_time(since) if since else None

    @property
    def message_stats(self) -> dict[str, Any] | None:
        """Numbers of messages with their rates."""
        assert self._rates is not None, "a document needs rates"
        counters = self.channel.counters
        return message_stats(self._rates, _MESSAGES, counters.row(), counters) or None


class ConsumerView:
    """The attributes of a consumer that the fields of CONSUMER are read from.

    Args:
        consumer_timeout: Timeout of consumers without one of their own, in milliseconds; None for no timeout.
    """

    __slots__ = ("_consumer_timeout", "consumer", "node")

    def __init__(self, consumer: ClientConsumer, node: str = "", consumer_timeout: int | None = None) -> None:
        self.consumer = consumer
        self.node = node
        self._consumer_timeout = consumer_timeout

    queue_details = property(lambda self: {"name": self.consumer.queue.name, "vhost": self.consumer.queue.vhost_name})
    channel_details = property(lambda self: _channel_details(self.consumer.channel, self.node))
    arguments = property(lambda self: table_to_json(self.consumer.arguments))
    timeout = property(lambda self: self.consumer.timeout_ms or self._consumer_timeout or 0)
    next_offset = property(lambda self: self._place[0])
    lag = property(lambda self: self._place[1])

    @property
    def _place(self) -> tuple[int, int]:
        """Its next offset in the stream, and how many messages follow."""
        return cast("StreamQueue", self.consumer.queue).readers.place_of(cast("QueueConsumer", self.consumer))

    @property
    def activity_status(self) -> str:
        """Whether it gets messages, and why."""
        consumer = self.consumer
        # Of a stream's name the others are as in RabbitMQ before 4.1: they are not active.
        is_single, active = consumer.queue.single_active(cast("QueueConsumer", consumer))
        if not is_single:
            return "up"
        return "single_active" if cast("object", active) is consumer else "waiting"

    @property
    def active(self) -> bool:
        """Whether it gets messages; as in RabbitMQ before 4.1, those of streams without a name do not say so."""
        status = self.activity_status
        return status == "single_active" or (status == "up" and not self.consumer.queue.traits.keeps_messages)


class ConsumerNameView:
    """The attributes of a consumer name that the fields of CONSUMER_NAME are read from."""

    __slots__ = ("_node", "_stream", "entry")

    def __init__(self, stream: StreamQueue, entry: ConsumerName, node: str = "") -> None:
        self._stream = stream
        self.entry = entry
        self._node = node

    next_offset = property(lambda self: self._stream.readers.distance(self.entry.next)[0])
    lag = property(lambda self: self._stream.readers.distance(self.entry.next)[1])

    @property
    def active(self) -> dict[str, Any] | None:
        """The consumer that reads."""
        active = cast("ClientConsumer | None", self.entry.active)
        if active is None:
            return None
        return {"consumer_tag": active.tag, "channel_details": _channel_details(active.channel, self._node)}


_short_connection: Final = document_maker(field for field in CONNECTION if field.basic)
_connection: Final = document_maker(field for field in CONNECTION if not field.rate)
_channel: Final = document_maker(CHANNEL)
_consumer: Final = document_maker(field for field in CONSUMER if not field.of)
_stream_consumer: Final = document_maker(CONSUMER)
_consumer_name: Final = document_maker(CONSUMER_NAME)
#: Values that lists are sorted by, by field. Sorting by others makes all documents.
CHANNEL_SORT_KEYS: Final = sort_keys(CHANNEL, ChannelView)


def short_connection(connection: ClientConnection, node: str) -> dict[str, Any]:
    """Return the fields that identify a connection."""
    return _short_connection(ConnectionView(connection, node))


def connection_document(connection: ClientConnection, node: str, rates: Rates, alarmed: bool) -> dict[str, Any]:
    """Return a connection with all fields. See ConnectionView."""
    view = ConnectionView(connection, node, alarmed)
    return rates.add_to(_connection(view), _DATA, view.counters.row(), view.counters, "data_rates")


def connection_details(connection: ClientIdentity) -> dict[str, Any]:
    """Return the fields that identify a connection in the documents of other objects."""
    return {"name": connection.name, "peer_host": connection.peer[0], "peer_port": connection.peer[1]}


def channel_document(channel: ClientChannel, node: str, rates: Rates) -> dict[str, Any]:
    """Return a channel with all fields except its consumers."""
    return _channel(ChannelView(channel, node, rates))


def consumer_document(consumer: ClientConsumer, node: str, consumer_timeout: int | None) -> dict[str, Any]:
    """Return a consumer. See ConsumerView."""
    make = _stream_consumer if consumer.queue.traits.keeps_messages else _consumer
    return make(ConsumerView(consumer, node, consumer_timeout))


def consumer_name_document(stream: StreamQueue, name: ConsumerName, node: str) -> dict[str, Any]:
    """Return a consumer name of a stream. See ConsumerNameView."""
    return _consumer_name(ConsumerNameView(stream, name, node))


def _channel_details(channel: ClientChannel, node: str) -> dict[str, Any]:
    client = channel.client
    return {
        "name": channel_name(channel),
        "number": channel.number,
        "connection_name": client.name,
        "node": node,
        "peer_host": client.peer[0],
        "peer_port": client.peer[1],
        "user": client.username,
    }
