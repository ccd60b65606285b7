"""The columns `value` and `value_error` of messages in an archive, whose files have the bodies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from leveret.analytics.bodies.body_format import BodyReader
from leveret.analytics.bodies.body_options import PROPERTIES_OF_BODIES, VALUE_COLUMNS
from leveret.analytics.bodies.compression import Payloads, decompress
from leveret.analytics.bodies.value_columns import columns_of

#: Columns of the files that are needed to read bodies.
SOURCE_COLUMNS: Final = ("body", *sorted(PROPERTIES_OF_BODIES))


def stored_columns(columns: Sequence[str]) -> list[str]:
    """Return the columns of a file that are needed for some columns, the values of bodies among them."""
    return list(dict.fromkeys([*(name for name in columns if name not in VALUE_COLUMNS), *SOURCE_COLUMNS]))


def with_values(batch: pa.RecordBatch, columns: Sequence[str], reader: BodyReader) -> pa.RecordBatch:
    """Return rows of a file with the values of their bodies.

    Args:
        batch: Those of stored_columns().
        columns: Names of the columns to return, in order.
        reader: Reads the bodies.
    """
    values = columns_of(archived_payloads(batch), reader)
    arrays = [values[name] if name in values else batch.column(name) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def archived_payloads(batch: pa.RecordBatch) -> Payloads:
    """Return the bodies of rows of a file as their publishers made them.

    Args:
        batch: The rows, with SOURCE_COLUMNS.
    """
    compressions = pc.map_lookup(batch.column("headers"), "compression", "first")
    return decompress(batch.column("body"), batch.column("content_encoding"), compressions)
