"""The columns `value` and `value_error` of messages."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from leveret.analytics.bodies.body_format import BodyReader
from leveret.analytics.bodies.body_options import VALUE, VALUE_ERROR
from leveret.analytics.bodies.compression import Payloads, compressions_in, decompress
from leveret.analytics.rows.arrow_slices import binary_slices
from leveret.analytics.rows.property_slices import Slices, property_column
from leveret.analytics.rows.record_rows import RecordRows


def value_columns(rows: RecordRows, slices: dict[str, Slices], reader: BodyReader) -> dict[str, Any]:
    """Return the columns.

    Args:
        rows: The messages.
        slices: Where their properties are, PROPERTIES_OF_BODIES among them.
        reader: Reads their bodies.
    """
    return columns_of(payloads_of(rows, slices), reader)


def columns_of(payloads: Payloads, reader: BodyReader) -> dict[str, Any]:
    """Return the columns.

    Args:
        payloads: The bodies.
        reader: Reads them.
    """
    values = reader.read(payloads)
    reasons = pa.array([payloads.reasons.get(row) for row in range(len(payloads.octets))], pa.string())
    return {VALUE: values, VALUE_ERROR: reasons}


def payloads_of(rows: RecordRows, slices: dict[str, Slices]) -> Payloads:
    """Return the bodies as their publishers made them; see value_columns()."""
    start = rows.body_at
    bodies = binary_slices(rows.octets, start, start + rows.body_len)
    encodings = property_column(rows, "content_encoding", slices["content_encoding"])
    begin, end, present = slices["headers"]
    return decompress(bodies, encodings, compressions_in(binary_slices(rows.octets, begin, end, present)))
