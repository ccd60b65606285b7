"""Arrow schemas of the tables, with the numbers that columns have in archived Parquet files.

Iceberg tables find a column by its number, not by its name, so a number is never used for another column. Catalogs
number columns themselves. The numbers here are the ones that a catalog gives to a table that is made with the first
columns, and to which the later ones are added one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from leveret.analytics.columns import ARCHIVED_TABLES, BROKER, VALUE, VALUE_ERROR

#: Arrow types by Spark type.
ARROW_TYPES: Final[dict[str, Any]] = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}


def schema_of(types: Mapping[str, str], columns: Sequence[str], value: pa.DataType | None = None) -> pa.Schema:
    """Return the Arrow schema of some columns.

    Args:
        value: Type of the column `value`; None without bodies.
    """
    kinds = {name: ARROW_TYPES[kind] for name, kind in types.items()}
    if value is not None:
        kinds |= {VALUE: value, VALUE_ERROR: pa.string()}
    return pa.schema([(name, kinds[name]) for name in columns])


def with_broker(batch: pa.RecordBatch, broker: str, columns: Sequence[str]) -> pa.RecordBatch:
    """Return rows of a live table as those of an archived one.

    Args:
        batch: Those of the columns that the live table has, or any, if it has none of them.
    """
    name = pa.repeat(pa.scalar(broker, pa.string()), batch.num_rows)
    arrays = [name if each == BROKER else batch.column(each) for each in columns]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


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
