"""Commands for the backups that the broker takes. RabbitMQ has no such commands."""

from __future__ import annotations

from typing import Final

from leveret.broker.management.cli.columns import table_columns, to_rows
from leveret.broker.management.cli.command import MONITORING, CommandContext, ResultRows, command, selected_columns
from leveret.broker.management.cli.faults import ApiFault, failed, refused
from leveret.broker.management.cli.options import HEADERS, TIMEOUT, Argument
from leveret.broker.management.fields import BACKUP

_COLUMNS: Final = table_columns(BACKUP)


@command(
    "list_backups",
    MONITORING,
    "Lists the whole backups that the broker takes, the newest first: moment, size, and up to when each restores",
    (HEADERS, Argument("[<column> ...]", columns=_COLUMNS), TIMEOUT),
    banner="Listing backups ...",
)
def _list_backups(context: CommandContext) -> ResultRows:
    names = selected_columns(context.arguments, tuple(_COLUMNS))
    try:
        found = context.api.get("backups")
    except ApiFault as fault:
        raise refused(fault, "commands for backups") from fault
    if found["url"] is None:
        raise failed("the broker takes no backups: backup.url is not set")
    return to_rows(_COLUMNS, names, found["backups"])
