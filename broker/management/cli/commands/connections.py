"""The command list_connections."""

from __future__ import annotations

from typing import Any, Final

from leveret.broker.management.cli.columns import (
    Column,
    check_columns,
    columns_query,
    field,
    fields,
    selected_columns,
    to_rows,
)
from leveret.broker.management.cli.command import Command, CommandContext, ResultRows
from leveret.broker.management.cli.terms import Arguments, connection_identifier


def _protocol(text: str) -> Any:
    """Return `AMQP 0-9-1` as the tuple of version numbers that rabbitmqctl prints."""
    name, _, version = text.partition(" ")
    numbers = version.split("-")
    if name != "AMQP" or not all(number.isdigit() for number in numbers):
        return text
    return tuple(int(number) for number in numbers)


COLUMNS: Final[dict[str, Column]] = {
    "pid": field("name", connection_identifier),
    **fields("name", "port", "host", "peer_port", "peer_host", "ssl", "ssl_protocol", "ssl_key_exchange"),
    **fields("ssl_cipher", "ssl_hash", "peer_cert_subject", "peer_cert_issuer", "peer_cert_validity", "state"),
    "channels": field("channels"),
    "protocol": field("protocol", _protocol),
    **fields("auth_mechanism", "user", "vhost", "timeout", "frame_max", "channel_max"),
    "client_properties": field("client_properties", Arguments),
    **fields("recv_oct", "recv_cnt", "send_oct", "send_cnt", "send_pend", "connected_at"),
}


def _list(context: CommandContext) -> ResultRows:
    names = selected_columns(context.arguments, ("user", "peer_host", "peer_port", "state"))
    # In RabbitMQ's API, a connection that has just been opened has only its name.
    found = context.api.get("connections", columns=columns_query(COLUMNS, names))
    return to_rows(COLUMNS, names, found)


COMMANDS: Final = (
    Command(
        name="list_connections",
        section="Monitoring, observability and health checks",
        summary="Lists AMQP 0.9.1 connections for the node",
        usage="[--no-table-headers] [<column> ...] [--timeout <timeout>]",
        run=_list,
        max_arguments=None,
        options=("table-headers",),
        banner=lambda context: "Listing connections ...",
        check=check_columns(COLUMNS),
        columns=tuple(COLUMNS),
    ),
)
