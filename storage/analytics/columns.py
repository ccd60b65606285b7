"""The tables and their columns, by name and Spark type."""

from __future__ import annotations

from typing import Final

#: Properties of a message, in the order in which they stand in a content header, with their Spark types.
#: Headers, the third of them, are columns of their own.
PROPERTIES: Final[dict[str, str]] = {
    "content_type": "string",
    "content_encoding": "string",
    "delivery_mode": "int",
    "priority": "int",
    "correlation_id": "string",
    "reply_to": "string",
    "expiration": "string",
    "message_id": "string",
    "timestamp": "timestamp",
    "type": "string",
    "user_id": "string",
    "app_id": "string",
    "cluster_id": "string",
}

#: What is made of the headers.
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
        "seq": "bigint",
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
    "events": {
        "vhost": "string",
        "queue": "string",
        "queue_id": "bigint",
        "at": "timestamp",
        "kind": "string",
        "seq": "bigint",
        "messages": "bigint",
        "body_bytes": "bigint",
        "wait_ms": "bigint",
        "dead_lettered": "boolean",
        "redeliveries": "int",
        "stored": "boolean",
        "priority": "int",
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
    """The schema of a table in Spark's notation."""
    return ", ".join(f"`{name}` {kind}" for name, kind in TABLES[table].items())
