"""Commands for the backups that the broker takes. RabbitMQ has no such commands."""

from __future__ import annotations

from typing import Final

from leveret.broker.management.cli.command import CommandContext, Result, ResultRows, command, selected_columns
from leveret.broker.management.cli.command_errors import bad_argument, failed
from leveret.broker.management.cli.command_line import HEADERS, TIMEOUT, VHOST, Argument, option
from leveret.broker.management.cli.commands.jobs import DETACH, LIMIT, RATE, check_positive, run_job
from leveret.broker.management.cli.selectable_columns import table_columns, to_rows
from leveret.broker.management.fields import BACKUP

_COLUMNS: Final = table_columns(BACKUP)


@command(
    (HEADERS, Argument("[<column> ...]", columns=_COLUMNS), TIMEOUT),
    banner="Listing backups ...",
    of_leveret="commands for backups",
)
def list_backups(context: CommandContext, *columns: str) -> ResultRows:
    """Lists the whole backups that the broker takes, the newest first: moment, size, and up to when each restores."""
    names = selected_columns(columns, tuple(_COLUMNS))
    found = context.api.get("backups")
    if found["url"] is None:
        raise failed("the broker takes no backups: backup.url is not set")
    return to_rows(_COLUMNS, names, found["backups"])


def _check_restore(context: CommandContext) -> None:
    if "at" not in context.options:
        raise bad_argument("--at is needed: a moment that list_backups shows, or any between two")
    check_positive(context, "rate", "limit")


@command(
    (
        Argument("<queue>", "the queue as it was called at that moment"),
        option("at", "the moment, such as 2026-01-31T14:04:50Z"),
        option("into-queue", "the queue that gets the messages: NAME.restored by default; declared if there is none"),
        VHOST,
        RATE,
        LIMIT,
        DETACH,
        option("dry-run", "count its messages, and restore nothing"),
        TIMEOUT,
    ),
    banner="Restoring queue '{0}' in vhost '{context.vhost}' ...",
    check=_check_restore,
    timeout=None,
)
def restore_queue(context: CommandContext, queue: str) -> Result:
    """Restores a queue, which may be gone, from the broker's backups, into another one; a crash loses none."""
    options = {key: context.options.get(key) for key in ("at", "rate", "limit")}
    options["into"] = context.options.get("into-queue")
    return run_job(context, queue, "restore", "restore", options)
