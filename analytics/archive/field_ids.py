"""Numbers of the columns in archived Parquet files, by which Iceberg tables know a column whatever it is called.

A number is never used for another column. They are those that a catalog gives to a table that is made with the first
columns, and to which the later ones are added one by one, since catalogs number columns themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from leveret.analytics.arrow_schema import ARROW_TYPES
from leveret.analytics.columns import ARCHIVED_TABLES

#: Columns of the first tables. Nothing is added here, or put in another order.
FIRST_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    table: tuple(names.split())
    for table, names in {
        "messages": "broker vhost queue queue_id store_priority seq stream_offset enqueued_at expires_at exchange "
        "routing_key content_type content_encoding delivery_mode priority correlation_id reply_to expiration "
        "message_id timestamp type user_id app_id cluster_id headers headers_json dead_letter_count "
        "dead_letter_reason dead_letter_queue dead_lettered_at original_exchange original_routing_key "
        "persistent redelivered body_bytes body",
        "events": "broker vhost queue exchange queue_id at event_at kind seq messages body_bytes wait_ms min_wait_ms "
        "sum_wait_ms dead_lettered redeliveries stored priority told routing_key message_id user_name "
        "connection_name",
        "audit": "broker at event_at kind user_name host consequence vhost object messages details",
    }.items()
}
_KEY: Final = b"PARQUET:field_id"


def archived_schema(table: str) -> pa.Schema:
    """Return the Arrow schema of an archived table, in the order of its columns, with their numbers as metadata."""
    numbers = field_ids(table)
    return pa.schema([_field(name, kind, numbers) for name, kind in ARCHIVED_TABLES[table].items()])


def _field(name: str, kind: str, numbers: Mapping[str, int]) -> pa.Field:
    found = ARROW_TYPES[kind]
    if pa.types.is_map(found):
        key = pa.field("key", found.key_type, False, _metadata(numbers[f"{name}.key"]))
        found = pa.map_(key, pa.field("value", found.item_type, True, _metadata(numbers[f"{name}.value"])))
    return pa.field(name, found, metadata=_metadata(numbers[name]))


def _metadata(number: int) -> dict[bytes, bytes]:
    return {_KEY: str(number).encode()}


def later_columns(table: str) -> list[str]:
    """Return the columns of a table that are not among the first ones, in the order in which they have come."""
    return [name for name in ARCHIVED_TABLES[table] if name not in FIRST_COLUMNS[table]]


def field_ids(table: str) -> dict[str, int]:
    """Return the number of each column, and of keys and values of maps as `name.key` and `name.value`."""
    types, names = ARCHIVED_TABLES[table], list(FIRST_COLUMNS[table])
    names += [part for name in FIRST_COLUMNS[table] for part in _parts(name, types)]
    for name in later_columns(table):
        names += [name, *_parts(name, types)]
    return {name: number for number, name in enumerate(names, 1)}


def _parts(name: str, types: Mapping[str, str]) -> list[str]:
    return [f"{name}.key", f"{name}.value"] if types[name].startswith("map<") else []
