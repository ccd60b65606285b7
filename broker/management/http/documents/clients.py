"""Connections, channels and consumers as JSON."""

from __future__ import annotations

from typing import Any, Final, cast

from leveret.broker.core.clients import ClientChannel, ClientConnection, ClientConsumer, ClientIdentity, ClientTls
from leveret.broker.core.counters.counters import ChannelCounters, ConnectionCounters
from leveret.broker.core.json_values.tables import table_to_json
from leveret.broker.core.queues.consumer_names import ConsumerName
from leveret.broker.core.queues.consumers import QueueConsumer
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.queues.stream_queue import StreamQueue
from leveret.broker.management.http.documents.views import PROCESS, iso_time
from leveret.broker.management.http.statistics import Rates, delivery_numbers, message_stats, numbers, publish_numbers
from leveret.protocol.field_table import as_text, find

_DATA: Final = numbers(ConnectionCounters.FIELDS, "recv_oct", "send_oct")
_MESSAGES: Final = (publish_numbers(ChannelCounters.FIELDS), delivery_numbers(ChannelCounters.FIELDS))


def client_provided_name(connection: ClientIdentity) -> str:
    """Return the client-provided connection name; "" if there is none."""
    name = find(connection.client_properties, "connection_name")
    return as_text(name) if name is not None and name.kind == "S" else ""


def short_connection(connection: ClientConnection, node: str) -> dict[str, Any]:
    """Return the fields that identify a connection."""
    return {
        "name": connection.name,
        "vhost": connection.vhost_name,
        "user": connection.username,
        "node": node,
    }


def connection_document(connection: ClientConnection, node: str, rates: Rates, alarmed: bool) -> dict[str, Any]:
    """Return a connection with all fields.

    Args:
        connection: The connection.
        node: Name of the node.
        rates: Rates of the request.
        alarmed: Whether a resource alarm is set, which blocks the connection when it publishes.
    """
    properties = table_to_json(connection.client_properties)
    counters = connection.output.counters
    document = {
        **short_connection(connection, node),
        "user_who_performed_action": connection.username,
        "client_properties": properties,
        "host": connection.local[0],
        "port": connection.local[1],
        "peer_host": connection.peer[0],
        "peer_port": connection.peer[1],
        "protocol": "AMQP 0-9-1",
        "type": "network",
        "auth_mechanism": connection.auth_mechanism,
        "state": "blocked" if connection.blocked else "blocking" if alarmed else "running",
        "connected_at": connection.connected_at,
        "timeout": connection.heartbeat,
        "channels": len(connection.channels),
        "channel_max": connection.channel_max,
        "frame_max": connection.frame_max,
        "recv_cnt": counters.recv_cnt,
        "send_cnt": counters.send_cnt,
        "send_pend": connection.output.pending_bytes(),
        **_encryption(connection.tls),
        **PROCESS,
    }
    name = properties.get("connection_name")
    if isinstance(name, str):
        document["user_provided_name"] = name
    return rates.add_to(document, _DATA, counters.row(), counters, "data_rates")


def _encryption(tls: ClientTls | None) -> dict[str, Any]:
    return {
        "ssl": tls is not None,
        "ssl_protocol": None if tls is None else tls.protocol,
        "ssl_cipher": None if tls is None else tls.cipher,
        # Part of the cipher's name, or with TLS 1.3 not part of the cipher suite.
        "ssl_key_exchange": None,
        "ssl_hash": None,
        "peer_cert_subject": None if tls is None else tls.subject,
        "peer_cert_issuer": None if tls is None else tls.issuer,
        "peer_cert_validity": None if tls is None else tls.validity,
    }


def connection_details(connection: ClientIdentity) -> dict[str, Any]:
    """Return the fields that identify a connection in the documents of other objects."""
    return {"name": connection.name, "peer_host": connection.peer[0], "peer_port": connection.peer[1]}


def channel_name(channel: ClientChannel) -> str:
    """Return the name of a channel: its connection's name and its number in brackets."""
    return f"{channel.client.name} ({channel.number})"


def channel_document(channel: ClientChannel, node: str, rates: Rates) -> dict[str, Any]:
    """Return a channel with all fields except its consumers."""
    client, counters = channel.client, channel.counters
    provided_name = client_provided_name(client)
    messages, acks = channel.uncommitted
    document = {
        "name": channel_name(channel),
        "number": channel.number,
        "node": node,
        "user": client.username,
        "user_who_performed_action": client.username,
        "vhost": client.vhost_name,
        "connection_details": connection_details(client),
        "state": "running",
        "confirm": channel.confirming,
        "transactional": channel.transactional,
        "consumer_count": len(channel.consumers),
        "prefetch_count": channel.default_prefetch,
        "global_prefetch_count": channel.prefetch,
        "messages_unacknowledged": channel.unacked_count,
        "messages_unconfirmed": channel.unconfirmed_count,
        "messages_uncommitted": messages,
        "acks_uncommitted": acks,
        "pending_raft_commands": 0,
        **PROCESS,
    }
    if provided_name:
        document["user_provided_name"] = provided_name
    if counters.idle_since:
        document["idle_since"] = iso_time(counters.idle_since)
    stats = message_stats(rates, _MESSAGES, counters.row(), counters)
    if stats:
        document["message_stats"] = stats
    return document


def consumer_document(consumer: ClientConsumer, node: str, consumer_timeout: int | None) -> dict[str, Any]:
    """Return a consumer.

    Args:
        consumer: The consumer.
        node: Name of the node.
        consumer_timeout: Timeout of consumers without one of their own, in milliseconds; None for no timeout.
    """
    channel, queue = consumer.channel, consumer.queue
    active, status = _activity(consumer, queue)
    document = {
        "consumer_tag": consumer.tag,
        "queue": {"name": queue.name, "vhost": queue.vhost_name},
        "channel_details": _channel_details(channel, node),
        "ack_required": not consumer.no_ack,
        "exclusive": consumer.exclusive,
        "prefetch_count": consumer.prefetch,
        "active": active,
        "activity_status": status,
        "arguments": table_to_json(consumer.arguments),
        # Newer clients fail if it is missing; 0 means no timeout.
        "consumer_timeout": consumer.timeout_ms or consumer_timeout or 0,
    }
    if isinstance(queue, StreamQueue):
        document["next_offset"], document["lag"] = queue.readers.place_of(cast("QueueConsumer", consumer))
    return document


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


def consumer_name_document(stream: StreamQueue, name: ConsumerName, node: str) -> dict[str, Any]:
    """Return a consumer name of a stream.

    Args:
        stream: The stream.
        name: The name.
        node: Name of the node.
    """
    offset, lag = stream.readers.distance(name.next)
    active = cast("ClientConsumer | None", name.active)
    return {
        "name": name.name,
        "next_offset": offset,
        "lag": lag,
        "missed": name.missed,
        "changed": name.changed // 1000 or None,
        "active": None
        if active is None
        else {"consumer_tag": active.tag, "channel_details": _channel_details(active.channel, node)},
        "waiting": len(name.waiting),
    }


def _activity(consumer: ClientConsumer, queue: Queue) -> tuple[bool, str]:
    if isinstance(queue, StreamQueue):
        name = queue.names.name_of(cast("QueueConsumer", consumer))
        if name is None:
            # As in RabbitMQ before 4.1.
            return False, "up"
        is_active = cast("object", name.active) is consumer
        return is_active, "single_active" if is_active else "waiting"
    if not queue.consumers.single_active:
        return True, "up"
    is_active = cast("object", queue.consumers.active) is consumer
    return is_active, "single_active" if is_active else "waiting"
