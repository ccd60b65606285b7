"""Columns of the tables in an archive: the name of the broker, and then those of the live tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from leveret.analytics.archive.layout import TIME_COLUMNS
from leveret.analytics.arrow_schema import schema_of
from leveret.analytics.bodies.body_format import BodyFormat
from leveret.analytics.columns import TABLES
from leveret.analytics.errors import OptionError
from leveret.analytics.rows.arrow_slices import constant

#: Name of the column with the broker.
BROKER: Final = "broker"
#: Spark types of the columns of each table.
ARCHIVED_TABLES: Final = {table: {BROKER: "string", **TABLES[table]} for table in TIME_COLUMNS}


def archived_types(table: str) -> dict[str, str]:
    """Return the Spark types of the columns of an archived table, by name.

    Raises:
        OptionError: Archives have no such table.
    """
    known = ARCHIVED_TABLES.get(table)
    if known is None:
        raise OptionError(f"an archive has the tables {' and '.join(ARCHIVED_TABLES)}, but not {table}")
    return known


def archived_schema(table: str, columns: Sequence[str], bodies: BodyFormat | None = None) -> Any:
    """Return the Arrow schema of some columns of an archived table.

    Args:
        table: Name of the table.
        columns: Names of the columns, in order.
        bodies: How bodies are read; None if no column needs it.
    """
    return schema_of(ARCHIVED_TABLES[table], columns, bodies)


def with_broker(batch: pa.RecordBatch, broker: str, columns: Sequence[str]) -> pa.RecordBatch:
    """Return rows of a live table as those of an archived one.

    Args:
        batch: Those of the columns that the live table has, or any, if it has none of them.
        broker: Name of the broker.
        columns: Names of the columns to return, in order.
    """
    name = constant(broker, pa.string(), batch.num_rows)
    arrays = [name if each == BROKER else batch.column(each) for each in columns]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))
