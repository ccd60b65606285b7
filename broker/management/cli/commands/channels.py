"""The command list_channels."""

from __future__ import annotations

from typing import Final

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
from leveret.broker.management.cli.terms import channel_identifier, connection_identifier

COLUMNS: Final[dict[str, Column]] = {
    "pid": field("name", channel_identifier),
    "connection": field("connection_details.name", connection_identifier),
    **fields("name", "number", "user", "vhost", "transactional", "confirm", "consumer_count"),
    **fields("messages_unacknowledged", "messages_uncommitted", "acks_uncommitted", "messages_unconfirmed"),
    **fields("prefetch_count", "global_prefetch_count"),
}


def _list(context: CommandContext) -> ResultRows:
    names = selected_columns(context.arguments, ("pid", "user", "consumer_count", "messages_unacknowledged"))
    found = context.api.get("channels", columns=columns_query(COLUMNS, names))
    return to_rows(COLUMNS, names, found)


COMMANDS: Final = (
    Command(
        name="list_channels",
        section="Monitoring, observability and health checks",
        summary="Lists all channels in the node",
        usage="[--no-table-headers] [<column> ...]",
        run=_list,
        max_arguments=None,
        options=("table-headers",),
        banner=lambda context: "Listing channels ...",
        check=check_columns(COLUMNS),
        columns=tuple(COLUMNS),
    ),
)
