"""Prints docs/tables.md: every column of the tables, and every kind of event (`leveret-analytics table-reference`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from leveret.analytics.arrow_schema import ARROW_TYPES
from leveret.analytics.columns import ARCHIVED_TABLES, BODY_TABLES, BROKER, COLUMNS, VALUE, VALUE_ERROR, Column
from leveret.storage.event_format import LOSSES, EventKind

_INTRODUCTION: Final = """# Tables

Every column of the tables that [Spark, Arrow](analytics.md) and [archives](archive.md) have, as printed by
`leveret-analytics table-reference`. The types are those of Spark and, in brackets, of Arrow. Times are in UTC.

**Null**: whether the column can be null. Files of an archive that are older than a column have null in it, too.
**Since**: the version that had it first.
"""
#: What a row of each table is.
_ROWS: Final[Mapping[str, str]] = {
    "messages": "A row is a message that waits in a queue or stream, ready or unacknowledged; in an archive, one that "
    "has come.",
    "delayed": "A row is a message that waits in a delayed exchange.",
    "events": "A row is what became of a number of messages at one time.",
    "audit": "A row is a line of the audit log: something that was done.",
    "segments": "A row is a segment file of a queue or stream.",
    "queues": "A row is a queue or stream.",
}
_BROKER: Final = Column("string", "Only in archives: name of the broker")
_VALUES: Final[Mapping[str, Column]] = {
    VALUE: Column(
        "",
        "Only with `bodies`: what the body says; its type is that of the schema that is given or inferred",
        nullable=True,
    ),
    VALUE_ERROR: Column("string", "Only with `bodies`: why there is no `value`, or which fields are missing", True),
}
#: Kinds of events that have rows, and what they mean.
_KINDS: Final[Mapping[EventKind, str]] = {
    EventKind.ACK: "were acknowledged by a consumer",
    EventKind.AUTO_ACK: "were delivered to a consumer, or got, without acknowledgement",
    EventKind.REJECT: "were rejected without requeue",
    EventKind.EXPIRED: "expired (time to live)",
    EventKind.MAXLEN: "were dropped, because the queue had more messages than its limit",
    EventKind.MAXLEN_BYTES: "were dropped, because the queue had more bytes than its limit",
    EventKind.DELIVERY_LIMIT: "had returned too often",
    EventKind.PURGED: "were purged, or deleted one by one",
    EventKind.QUEUE_DELETED: "were deleted with their queue or delayed exchange",
    EventKind.LOST: "were damaged on disk, or their file is missing",
    EventKind.RETURNED: "returned to a queue that counts or delays returns; they have new numbers there",
    EventKind.MOVED: "were moved to another queue, or returned to where they had been dead-lettered",
    EventKind.ROUTED: "were due in a delayed exchange, and are in the queues that they were routed to",
    EventKind.NOT_ROUTED: "were due in a delayed exchange, and reached no queue",
    EventKind.CANCELLED: "waited in a delayed exchange, or to be redelivered, and were removed on request",
    EventKind.RETENTION: "were removed with their segment, because of a stream's limits",
    EventKind.REQUEUE: "returned to their places in a queue that does not count returns; they are still there",
    EventKind.REFUSED: "were refused by a full queue or delayed exchange; they were never in it",
    EventKind.UNROUTABLE: "were published, and there was no queue for them",
    EventKind.DEAD_LETTER_LOST: "were dead-lettered before, with an event of their own, and reached no queue",
}


def reference_page() -> str:
    """Render docs/tables.md.

    Returns:
        The page, with a line feed at the end.
    """
    return _INTRODUCTION + "".join(_table(table) for table in COLUMNS) + _kinds()


def _table(table: str) -> str:
    columns = {
        **({BROKER: _BROKER} if table in ARCHIVED_TABLES else {}),
        **COLUMNS[table],
        **(_VALUES if table in BODY_TABLES else {}),
    }
    rows = [(f"`{name}`", _type(each), _yes(each.nullable), each.since, each.meaning) for name, each in columns.items()]
    return f"\n## {table}\n\n{_ROWS[table]}\n\n{_markdown(('Column', 'Type', 'Null', 'Since', 'Meaning'), rows)}"


def _type(column: Column) -> str:
    return f"`{column.kind}` (`{ARROW_TYPES[column.kind]}`)" if column.kind else "that of the bodies"


def _kinds() -> str:
    rows = [(f"`{kind.name.lower()}`", _yes(kind in LOSSES), "0.1", meaning) for kind, meaning in _KINDS.items()]
    return (
        "\n## Kinds of events\n\nThe values of `kind` in the table `events`. **Loss**: whether the messages are lost, "
        "unless they were `dead_lettered`, or their\npublisher was `told`. A kind of a newer version is shown as "
        f"`kind_` and its number.\n\n{_markdown(('Kind', 'Loss', 'Since', 'The messages …'), rows)}"
    )


def _yes(value: bool) -> str:
    return "yes" if value else ""


def _markdown(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
