"""Tables of the data source and their columns, by name and Spark type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from leveret.protocol.properties import FLAGS

_TYPES: Final = {"delivery_mode": "int", "priority": "int", "timestamp": "timestamp"}
#: Spark types of the message properties, in wire order. Headers have separate columns.
PROPERTIES: Final = {name: _TYPES.get(name, "string") for _, name in FLAGS if name != "headers"}

#: Columns that are computed from the headers.
HEADERS: Final[dict[str, str]] = {
    "headers": "map<string,string>",
    "headers_json": "string",
    "dead_letter_count": "bigint",
    "dead_letter_reason": "string",
    "dead_letter_queue": "string",
    "dead_lettered_at": "timestamp",
}

TABLES: Final[dict[str, dict[str, str]]] = {
    "messages": {
        "vhost": "string",
        "queue": "string",
        # With seq they are the key of a row, also when the queue has been deleted and declared again.
        "queue_id": "bigint",
        "store_priority": "int",
        "seq": "bigint",
        # Of a message in a stream: seq minus 1.
        "stream_offset": "bigint",
        "enqueued_at": "timestamp",
        "expires_at": "timestamp",
        "exchange": "string",
        "routing_key": "string",
        **PROPERTIES,
        **HEADERS,
        "persistent": "boolean",
        "redelivered": "boolean",
        "body_bytes": "bigint",
        "body": "binary",
    },
    "delayed": {
        "vhost": "string",
        "delayed_in": "string",
        "seq": "bigint",
        "published_at": "timestamp",
        "due_at": "timestamp",
        "exchange": "string",
        "routing_key": "string",
        **PROPERTIES,
        **HEADERS,
        "persistent": "boolean",
        "body_bytes": "bigint",
        "body": "binary",
    },
    "events": {
        "vhost": "string",
        "queue": "string",
        "exchange": "string",
        "queue_id": "bigint",
        "at": "timestamp",
        "kind": "string",
        "seq": "bigint",
        "messages": "bigint",
        "body_bytes": "bigint",
        # The longest and the shortest wait of these messages, and the sum of all.
        "wait_ms": "bigint",
        "min_wait_ms": "bigint",
        "sum_wait_ms": "bigint",
        "dead_lettered": "boolean",
        "redeliveries": "int",
        "stored": "boolean",
        "priority": "int",
        # Of refused and unroutable messages; see also vhost and exchange.
        "told": "boolean",
        "routing_key": "string",
        "message_id": "string",
        "user_name": "string",
        "connection_name": "string",
    },
    "segments": {
        "vhost": "string",
        "queue": "string",
        "queue_id": "bigint",
        "priority": "int",
        "first_seq": "bigint",
        "last_seq": "bigint",
        "generation": "int",
        "sealed": "boolean",
        "persistent": "boolean",
        "records": "bigint",
        "messages": "bigint",
        "body_bytes": "bigint",
        "file_bytes": "bigint",
        "oldest_at": "timestamp",
        "newest_at": "timestamp",
    },
    "queues": {
        "vhost": "string",
        "queue": "string",
        "queue_id": "bigint",
        "durable": "boolean",
        "messages": "bigint",
        "body_bytes": "bigint",
        "file_bytes": "bigint",
        "oldest_at": "timestamp",
        "newest_at": "timestamp",
        "segments": "int",
        "as_of": "timestamp",
    },
}


def schema_of(table: str) -> str:
    """Return the schema of a table as a Spark DDL string."""
    return ddl_of(TABLES[table])


def ddl_of(types: Mapping[str, str]) -> str:
    """Return columns as a Spark DDL string.

    Args:
        types: Their Spark types by name.
    """
    return ", ".join(f"`{name}` {kind}" for name, kind in types.items())
