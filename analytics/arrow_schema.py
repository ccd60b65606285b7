"""Arrow schemas of the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from leveret.analytics.bodies.body_format import BodyFormat
from leveret.analytics.bodies.body_options import VALUE, VALUE_ERROR
from leveret.analytics.columns import TABLES

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


def arrow_schema(table: str, columns: Sequence[str], bodies: BodyFormat | None = None) -> Any:
    """Return the Arrow schema of some columns of a table.

    Args:
        table: Name of the table.
        columns: Names of the columns, in order.
        bodies: How bodies are read; None if no column needs it.
    """
    return schema_of(TABLES[table], columns, bodies)


def schema_of(types: Mapping[str, str], columns: Sequence[str], bodies: BodyFormat | None) -> Any:
    """Return the Arrow schema of some columns.

    Args:
        types: Spark types of all columns by name.
        columns: Names of the columns, in order.
        bodies: How bodies are read; None if no column needs it.
    """
    kinds = {name: ARROW_TYPES[kind] for name, kind in types.items()}
    if bodies is not None:
        kinds |= {VALUE: bodies.kind, VALUE_ERROR: pa.string()}
    return pa.schema([(name, kinds[name]) for name in columns])
