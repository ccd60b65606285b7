"""The commands list_exchanges and list_bindings."""

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
from leveret.broker.management.cli.terms import Arguments

SECTION: Final = "Monitoring, observability and health checks"
EXCHANGE_COLUMNS: Final[dict[str, Column]] = {
    **fields("name", "type", "durable", "auto_delete", "internal"),
    "arguments": field("arguments", Arguments),
    "policy": field("policy"),
}
BINDING_COLUMNS: Final[dict[str, Column]] = {
    "source_name": field("source"),
    "source_kind": Column(lambda found: "exchange", ()),
    "destination_name": field("destination"),
    "destination_kind": field("destination_type"),
    "routing_key": field("routing_key"),
    "arguments": field("arguments", Arguments),
}


def _list_exchanges(context: CommandContext) -> ResultRows:
    names = selected_columns(context.arguments, ("name", "type"))
    found = context.api.find("exchanges", context.vhost, columns=columns_query(EXCHANGE_COLUMNS, names)) or []
    return to_rows(EXCHANGE_COLUMNS, names, found)


def _list_bindings(context: CommandContext) -> ResultRows:
    names = selected_columns(context.arguments, tuple(BINDING_COLUMNS))
    found: list[dict[str, Any]] = context.api.find("bindings", context.vhost) or []
    return to_rows(BINDING_COLUMNS, names, found)


COMMANDS: Final = (
    with_columns(
        EXCHANGE_COLUMNS,
        Command(
            name="list_exchanges",
            section=SECTION,
            summary="Lists exchanges",
            usage="[--vhost <vhost>] [--no-table-headers] [<column> ...] [--timeout <timeout>]",
            run=_list_exchanges,
            options=("table-headers",),
            banner=lambda context: f"Listing exchanges for vhost {context.vhost} ...",
        ),
    ),
    with_columns(
        BINDING_COLUMNS,
        Command(
            name="list_bindings",
            section=SECTION,
            summary="Lists all bindings on a vhost",
            usage="[--vhost <vhost>] [--no-table-headers] [<column> ...] [--timeout <timeout>]",
            run=_list_bindings,
            options=("table-headers",),
            banner=lambda context: f"Listing bindings for vhost {context.vhost}...",
        ),
    ),
)
