"""Arrow schemas of the tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from leveret.storage.analytics.columns import TABLES

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


def arrow_schema(table: str, columns: Sequence[str]) -> Any:
    """Return the Arrow schema of some columns of a table.

    Args:
        table: Name of the table.
        columns: Names of the columns, in order.
    """
    return pa.schema([(name, ARROW_TYPES[TABLES[table][name]]) for name in columns])
