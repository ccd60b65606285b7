"""Tables of the data source and their columns: name, Spark type, and what docs/tables.md says about them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from leveret.analytics.errors import OptionError
from leveret.protocol.properties import FLAGS

#: Tables that have bodies.
BODY_TABLES: Final = ("messages", "delayed")
#: Columns that such a table has besides; the type of `value` depends on the bodies.
VALUE: Final = "value"
VALUE_ERROR: Final = "value_error"
VALUE_COLUMNS: Final = (VALUE, VALUE_ERROR)
#: The properties of messages that say how their bodies are to be read.
PROPERTIES_OF_BODIES: Final = frozenset({"content_encoding", "headers"})
#: Tables that are archived, and the column with the time by which their files are divided.
TIME_COLUMNS: Final = {"messages": "enqueued_at", "events": "at", "audit": "at"}
#: What the names of tables of rules for bodies begin with: the messages of their queues, with what the bodies say.
OF_RULE: Final = "bodies_"
#: Name of the column with the broker, which only archived tables have.
BROKER: Final = "broker"


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        kind: Its Spark type.
        meaning: What it says.
        nullable: Whether it can be null.
        since: Version of Leveret that had it first.
    """

    kind: str
    meaning: str
    nullable: bool = False
    since: str = "0.1"


_TYPES: Final = {"delivery_mode": "int", "priority": "int", "timestamp": "timestamp"}
#: Spark types of the message properties, in wire order. Headers have separate columns.
PROPERTIES: Final = {name: _TYPES.get(name, "string") for _, name in FLAGS if name != "headers"}
_IDENTITY: Final = (
    "With `store_priority` and `seq` the key of a message, also if its queue is deleted and declared again"
)
_VHOST: Final = Column("string", "Virtual host")
_PUBLISHED: Final[dict[str, Column]] = {
    "exchange": Column("string", "Exchange that the message was published to, empty for the default exchange"),
    "routing_key": Column("string", "Its routing key"),
    **{name: Column(kind, f"Property `{name}`", nullable=True) for name, kind in PROPERTIES.items()},
}
_HEADERS: Final[dict[str, Column]] = {
    "headers": Column(
        "map<string,string>", "Headers as text; tables and arrays as JSON, bytes that are not UTF-8 as base64", True
    ),
    "headers_json": Column("string", 'Headers as JSON with their types: `{"x": {"type": "int", "value": 1}}`', True),
    "dead_letter_count": Column("bigint", "How often the message was dead-lettered, as `x-death` says; 0 without it"),
    "dead_letter_reason": Column(
        "string", "Reason of the last dead-lettering: `rejected`, `expired`, `maxlen` or `delivery_limit`", True
    ),
    "dead_letter_queue": Column("string", "Queue where it was dead-lettered last", True),
    "dead_lettered_at": Column("timestamp", "When it was dead-lettered last, to the second", True),
    "original_exchange": Column("string", "Of a dead letter: the exchange that its publisher published it to", True),
    "original_routing_key": Column("string", "Of a dead letter: the routing key that its publisher gave it", True),
}
#: Names of the columns that are computed from the headers.
HEADERS: Final = frozenset(_HEADERS)
_BODY: Final[dict[str, Column]] = {
    "body_bytes": Column("bigint", "Length of the body in bytes"),
    "body": Column("binary", "The body"),
}
_PERSISTENT: Final = Column("boolean", "Whether its delivery mode is 2")
_OLDEST: Final = Column("timestamp", "When the oldest of these messages arrived", nullable=True)
_NEWEST: Final = Column("timestamp", "When the newest of these messages arrived", nullable=True)
_OF_REFUSED: Final = "of a refused or unroutable message"
COLUMNS: Final[dict[str, dict[str, Column]]] = {
    "messages": {
        "vhost": _VHOST,
        "queue": Column("string", "Queue that has the message"),
        "queue_id": Column("bigint", _IDENTITY),
        "store_priority": Column(
            "int", "Part of the queue that has it: its priority, or another number if returns are counted or delayed"
        ),
        "seq": Column("bigint", "Number of the message; messages of a queue and priority have ascending ones"),
        "stream_offset": Column("bigint", "Offset in a stream; null in other queues", nullable=True),
        "enqueued_at": Column("timestamp", "When it arrived in the queue"),
        "expires_at": Column(
            "timestamp", "When it expires; of a message that waits before it is redelivered, when it is due", True
        ),
        **_PUBLISHED,
        **_HEADERS,
        "persistent": _PERSISTENT,
        "redelivered": Column("boolean", "Whether it was delivered before"),
        **_BODY,
    },
    "delayed": {
        "vhost": _VHOST,
        "delayed_in": Column("string", "Delayed exchange where it waits"),
        "seq": Column("bigint", "Number of the message in that exchange; `leveretctl show_delayed_message` takes it"),
        "published_at": Column("timestamp", "When it was published"),
        "due_at": Column("timestamp", "When it will be routed"),
        **_PUBLISHED,
        **_HEADERS,
        "persistent": _PERSISTENT,
        **_BODY,
    },
    "events": {
        "vhost": Column("string", "Virtual host; null if its name is not known any more", nullable=True),
        "queue": Column("string", "Queue; null if the event is of an exchange", nullable=True),
        "exchange": Column(
            "string", f"Delayed exchange, or exchange {_OF_REFUSED}; null for other events of queues", nullable=True
        ),
        "queue_id": Column("bigint", "Number of the queue or delayed exchange; 0 if there is none"),
        "at": Column("timestamp", "When it happened"),
        "event_at": Column("timestamp", "The same as `at`, under a name that no engine reserves"),
        "kind": Column("string", "What happened; see [Kinds of events](#kinds-of-events)"),
        "seq": Column("bigint", "Number of the first message, those that follow have the next ones; 0 if it had none"),
        "messages": Column("bigint", "Number of messages"),
        "body_bytes": Column("bigint", "Length of their bodies together, in bytes"),
        "wait_ms": Column("bigint", "The longest time that one of them has waited in the queue, in ms"),
        "min_wait_ms": Column("bigint", "The shortest one"),
        "sum_wait_ms": Column("bigint", "The sum of all their times"),
        "dead_lettered": Column("boolean", "Whether a dead-letter exchange got them"),
        "redeliveries": Column("int", "How often they had been redelivered"),
        "stored": Column("boolean", "Whether they were in a file before they left"),
        "priority": Column("int", "As `store_priority` in `messages`"),
        "told": Column(
            "boolean", f"Whether the publisher {_OF_REFUSED} knows, so that it is not lost; false for other events"
        ),
        "routing_key": Column("string", f"Routing key {_OF_REFUSED}", nullable=True),
        "message_id": Column("string", f"Property `message_id` {_OF_REFUSED}", nullable=True),
        "user_name": Column("string", f"Publisher's user {_OF_REFUSED}", nullable=True),
        "connection_name": Column("string", f"Publisher's connection {_OF_REFUSED}", nullable=True),
    },
    "audit": {
        "at": Column("timestamp", "When it was done"),
        "event_at": Column("timestamp", "The same as `at`, under a name that no engine reserves"),
        "kind": Column("string", "What was done, as in the routing keys of events: `queue.deleted`"),
        "user_name": Column("string", "Name of the user"),
        "host": Column("string", "Address of the client; null if the broker has done it by itself", nullable=True),
        "consequence": Column("boolean", "Whether nobody has asked for it: the bindings that go with a queue"),
        "vhost": Column("string", "Virtual host of the object; null if it has none", nullable=True),
        "object": Column("string", "Name of the object"),
        "messages": Column("bigint", "Number of messages or failed logins; null if about neither", nullable=True),
        "details": Column("string", "What else is known of it, as a JSON object"),
    },
    "segments": {
        "vhost": _VHOST,
        "queue": Column("string", "Queue that has the segment file"),
        "queue_id": Column("bigint", "Number of the queue, as in `messages`"),
        "priority": Column("int", "As `store_priority` in `messages`"),
        "first_seq": Column("bigint", "Least number of a message in it"),
        "last_seq": Column("bigint", "Greatest number of a message in it"),
        "generation": Column("int", "How often it was written again without the messages that have left"),
        "sealed": Column("boolean", "Whether it is complete: nothing is appended to it any more"),
        "persistent": Column("boolean", "Whether its messages survive a restart"),
        "records": Column("bigint", "Messages in the file, also those that have left the queue"),
        "messages": Column("bigint", "Messages in the file that are in the queue"),
        "body_bytes": Column("bigint", "Length of the bodies of these messages together, in bytes"),
        "file_bytes": Column("bigint", "Length of the file in bytes"),
        "oldest_at": _OLDEST,
        "newest_at": _NEWEST,
    },
    "queues": {
        "vhost": _VHOST,
        "queue": Column("string", "Name of the queue"),
        "queue_id": Column("bigint", "Its number, as in `messages`"),
        "durable": Column("boolean", "Whether it is durable"),
        "messages": Column("bigint", "Its messages that are in files"),
        "body_bytes": Column("bigint", "Length of their bodies together, in bytes"),
        "file_bytes": Column("bigint", "Length of its segment files in bytes"),
        "oldest_at": _OLDEST,
        "newest_at": _NEWEST,
        "segments": Column("int", "Number of its segment files"),
        "as_of": Column("timestamp", "The moment that the table shows"),
    },
}
#: Spark types of the columns of each table.
TABLES: Final = {table: {name: each.kind for name, each in columns.items()} for table, columns in COLUMNS.items()}
#: Spark types of the columns of each table of an archive.
ARCHIVED_TABLES: Final = {table: {BROKER: "string", **TABLES[table]} for table in TIME_COLUMNS}


def layout_of(table: str) -> str:
    """Return the table whose columns a table of an archive has: that of a rule has those of messages, and two more."""
    return "messages" if table.startswith(OF_RULE) else table


def time_column(table: str) -> str:
    """Return the column with the time by which the files of a table are divided."""
    return TIME_COLUMNS[layout_of(table)]


def types_of(table: str, is_archived: bool, has_values: bool = False) -> dict[str, str]:
    """Return the Spark types of the columns of a table, by name.

    Args:
        is_archived: Whether it is that of an archive.
        has_values: Whether bodies are read: then there is `value`, as text for now, and `value_error`.
    Raises:
        OptionError: Archives have no such table.
    """
    known = (ARCHIVED_TABLES if is_archived else TABLES).get(table)
    if known is None:
        raise OptionError(f"an archive has the tables {', '.join(ARCHIVED_TABLES)}, but not {table}")
    return {**known, **dict.fromkeys(VALUE_COLUMNS if has_values else (), "string")}


def reads_values(columns: Iterable[str]) -> bool:
    """Return whether bodies have to be read for some columns."""
    return not set(columns).isdisjoint(VALUE_COLUMNS)


def ddl_of(types: Mapping[str, str]) -> str:
    """Return columns, by name their Spark types, as a Spark DDL string."""
    return ", ".join(f"`{name}` {kind}" for name, kind in types.items())
