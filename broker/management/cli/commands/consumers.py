"""The command list_consumers."""

from __future__ import annotations

from typing import Any, Final

from leveret.broker.management.cli.columns import Column, check_columns, field, fields, selected_columns, to_rows
from leveret.broker.management.cli.command import Command, CommandContext, ResultRows
from leveret.broker.management.cli.terms import Arguments, channel_identifier

COLUMNS: Final[dict[str, Column]] = {
    "queue_name": field("queue.name"),
    "channel_pid": field("channel_details.name", channel_identifier),
    **fields("consumer_tag", "ack_required", "prefetch_count", "active", "activity_status"),
    "arguments": field("arguments", Arguments),
}
# Columns always have this order, independently of the arguments, as in rabbitmqctl's list_consumers.
DEFAULT: Final = tuple(name for name in COLUMNS if name != "activity_status")


def _list(context: CommandContext) -> ResultRows:
    found: list[dict[str, Any]] = context.api.find("consumers", context.vhost) or []
    names = selected_columns(context.arguments, DEFAULT)
    return to_rows(COLUMNS, tuple(name for name in COLUMNS if name in names), found)


COMMANDS: Final = (
    Command(
        name="list_consumers",
        section="Monitoring, observability and health checks",
        summary="Lists all consumers for a vhost",
        usage="[--vhost <vhost>] [--no-table-headers] [<column> ...] [--timeout <timeout>]",
        run=_list,
        max_arguments=None,
        options=("table-headers",),
        banner=lambda context: f"Listing consumers in vhost {context.vhost} ...",
        check=check_columns(COLUMNS),
        columns=tuple(COLUMNS),
    ),
)
