"""The command for the audit log. RabbitMQ has no such command."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from leveret.broker.leveretctl.command import CommandContext, ResultRows, command, selected_columns
from leveret.broker.leveretctl.command_errors import ApiFault, failed, refused
from leveret.broker.leveretctl.command_line import HEADERS, TIMEOUT, VHOST, Argument, option
from leveret.broker.leveretctl.selectable_columns import table_columns, to_rows
from leveret.broker.management.fields import AUDIT_RECORD

_COLUMNS: Final = table_columns(AUDIT_RECORD)
_DEFAULT: Final = ("at", "user", "host", "kind", "vhost", "object", "count")
#: Records that are listed without --limit, and those of a request.
_LIMIT: Final = 100
_PAGE_SIZE: Final = 500
_TEXTS: Final = ("user", "host", "kind", "vhost", "object", "since", "until")


@command(
    (
        HEADERS,
        VHOST,
        option("user", "what this user has done"),
        option("host", "what was done from this address"),
        option("kind", "what was done: queue.deleted, or user.* for all about users"),
        option("object", "name of the queue, exchange, user or other object"),
        option("since", "the first time, such as 2026-05-01T12:00:00, in UTC"),
        option("until", "the last time"),
        option("limit", f"how many are listed; {_LIMIT} by default"),
        Argument("[<column> ...]", columns=_COLUMNS),
        TIMEOUT,
    ),
    banner="Listing the audit log ...",
)
def list_audit(context: CommandContext, *columns: str) -> ResultRows:
    """Lists what was done, by whom and from where, the newest first; texts may have * for any characters."""
    names = selected_columns(columns, _DEFAULT)
    return to_rows(_COLUMNS, names, _records(context, context.integer("limit", _LIMIT)))


def _records(context: CommandContext, limit: int) -> Iterator[dict[str, Any]]:
    """Yield the newest records that are asked for."""
    query = {name: context.options.get(name) for name in _TEXTS}
    page, size = 1, max(1, min(limit, _PAGE_SIZE))
    while limit > 0:
        try:
            found = context.api.get("audit", **query, page=page, page_size=size)
        except ApiFault as fault:
            raise refused(fault, "a command for the audit log") from fault
        if not found["enabled"]:
            raise failed("there is no audit log: audit.enabled is false")
        yield from found["items"][:limit]
        limit -= size
        page += 1
        if not found["has_more"]:
            return
