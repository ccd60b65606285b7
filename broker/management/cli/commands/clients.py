"""Commands that list clients: connections, channels, consumers."""

from __future__ import annotations

from typing import Any, Final

from leveret.broker.management.cli.columns import (
    Column,
    columns_query,
    field,
    fields,
    selected_columns,
    to_rows,
    with_columns,
)
from leveret.broker.management.cli.command import Command, CommandContext, ResultRows
from leveret.broker.management.cli.terms import Arguments, channel_identifier, connection_identifier

SECTION: Final = "Monitoring, observability and health checks"


def _protocol(text: str) -> Any:
    """Return `AMQP 0-9-1` as the tuple of version numbers that rabbitmqctl prints."""
    name, _, version = text.partition(" ")
    numbers = version.split("-")
    if name != "AMQP" or not all(number.isdigit() for number in numbers):
        return text
    return tuple(int(number) for number in numbers)


CONNECTION_COLUMNS: Final[dict[str, Column]] = {
    "pid": field("name", connection_identifier),
    **fields("name", "port", "host", "peer_port", "peer_host", "ssl", "ssl_protocol", "ssl_key_exchange"),
    **fields("ssl_cipher", "ssl_hash", "peer_cert_subject", "peer_cert_issuer", "peer_cert_validity", "state"),
    "channels": field("channels"),
    "protocol": field("protocol", _protocol),
    **fields("auth_mechanism", "user", "vhost", "timeout", "frame_max", "channel_max"),
    "client_properties": field("client_properties", Arguments),
    **fields("recv_oct", "recv_cnt", "send_oct", "send_cnt", "send_pend", "connected_at"),
}
CHANNEL_COLUMNS: Final[dict[str, Column]] = {
    "pid": field("name", channel_identifier),
    "connection": field("connection_details.name", connection_identifier),
    **fields("name", "number", "user", "vhost", "transactional", "confirm", "consumer_count"),
    **fields("messages_unacknowledged", "messages_uncommitted", "acks_uncommitted", "messages_unconfirmed"),
    **fields("prefetch_count", "global_prefetch_count"),
}
CONSUMER_COLUMNS: Final[dict[str, Column]] = {
    "queue_name": field("queue.name"),
    "channel_pid": field("channel_details.name", channel_identifier),
    **fields("consumer_tag", "ack_required", "prefetch_count", "active", "activity_status"),
    "arguments": field("arguments", Arguments),
}
# Columns always have this order, independently of the arguments, as in rabbitmqctl's list_consumers.
_CONSUMER_DEFAULT: Final = tuple(name for name in CONSUMER_COLUMNS if name != "activity_status")


def _list_connections(context: CommandContext) -> ResultRows:
    names = selected_columns(context.arguments, ("user", "peer_host", "peer_port", "state"))
    # In RabbitMQ's API, a connection that has just been opened has only its name.
    found = context.api.get("connections", columns=columns_query(CONNECTION_COLUMNS, names))
    return to_rows(CONNECTION_COLUMNS, names, found)


def _list_channels(context: CommandContext) -> ResultRows:
    names = selected_columns(context.arguments, ("pid", "user", "consumer_count", "messages_unacknowledged"))
    found = context.api.get("channels", columns=columns_query(CHANNEL_COLUMNS, names))
    return to_rows(CHANNEL_COLUMNS, names, found)


def _list_consumers(context: CommandContext) -> ResultRows:
    found: list[dict[str, Any]] = context.api.find("consumers", context.vhost) or []
    names = selected_columns(context.arguments, _CONSUMER_DEFAULT)
    return to_rows(CONSUMER_COLUMNS, tuple(name for name in CONSUMER_COLUMNS if name in names), found)


COMMANDS: Final = (
    with_columns(
        CONNECTION_COLUMNS,
        Command(
            name="list_connections",
            section=SECTION,
            summary="Lists AMQP 0.9.1 connections for the node",
            usage="[--no-table-headers] [<column> ...] [--timeout <timeout>]",
            run=_list_connections,
            options=("table-headers",),
            banner=lambda context: "Listing connections ...",
        ),
    ),
    with_columns(
        CHANNEL_COLUMNS,
        Command(
            name="list_channels",
            section=SECTION,
            summary="Lists all channels in the node",
            usage="[--no-table-headers] [<column> ...]",
            run=_list_channels,
            options=("table-headers",),
            banner=lambda context: "Listing channels ...",
        ),
    ),
    with_columns(
        CONSUMER_COLUMNS,
        Command(
            name="list_consumers",
            section=SECTION,
            summary="Lists all consumers for a vhost",
            usage="[--vhost <vhost>] [--no-table-headers] [<column> ...] [--timeout <timeout>]",
            run=_list_consumers,
            options=("table-headers",),
            banner=lambda context: f"Listing consumers in vhost {context.vhost} ...",
        ),
    ),
)
