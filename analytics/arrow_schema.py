"""Arrow schemas of the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from leveret.analytics.columns import BROKER, VALUE, VALUE_ERROR

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
