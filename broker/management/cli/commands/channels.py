"""list_channels."""

from __future__ import annotations

from typing import Final

from leveret.broker.management.cli.columns import Column, check_columns, chosen, field, fields, listing, needed
from leveret.broker.management.cli.command import Command, CommandContext, ResultRows
from leveret.broker.management.cli.identifiers import channel_identifier, connection_identifier

COLUMNS: Final[dict[str, Column]] = {
    "pid": field("name", channel_identifier),
    "connection": field("connection_details.name", connection_identifier),
    **fields("name", "number", "user", "vhost", "transactional", "confirm", "consumer_count"),
    **fields("messages_unacknowledged", "messages_uncommitted", "acks_uncommitted", "messages_unconfirmed"),
    **fields("prefetch_count", "global_prefetch_count"),
}


def _list(context: CommandContext) -> ResultRows:
    names = chosen(context.arguments, ("pid", "user", "consumer_count", "messages_unacknowledged"))
    found = context.api.get("channels", columns=needed(COLUMNS, names))
    return listing(COLUMNS, names, found)


COMMANDS: Final = (
    Command(
        name="list_channels",
        section="Monitoring, observability and health checks",
        summary="Lists all channels in the node",
        usage="[--no-table-headers] [<column> ...]",
        run=_list,
        most=None,
        options=("table-headers",),
        banner=lambda context: "Listing channels ...",
        check=check_columns(COLUMNS),
        columns=tuple(COLUMNS),
    ),
)
