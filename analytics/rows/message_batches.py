"""Converts the messages of a segment to an Arrow record batch; only the selected columns are decoded."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from leveret.analytics.bodies.body_format import BodyReader
from leveret.analytics.bodies.body_options import PROPERTIES_OF_BODIES, reads_values
from leveret.analytics.columns import HEADERS, PROPERTIES
from leveret.analytics.rows.arrow_slices import binary_slices, constant, text_slices, times
from leveret.analytics.rows.property_slices import Slices, property_column, property_slices
from leveret.analytics.rows.record_rows import Positions, RecordRows, in_ranges
from leveret.storage.format import PERSISTENT
from leveret.storage.snapshots.segments import SegmentView

if TYPE_CHECKING:
    from leveret.analytics.rows.header_columns import HeaderColumns


class Label(NamedTuple):
    """Name of a queue, or of an exchange with delayed messages, which all its messages share.

    Attributes:
        vhost: Virtual host of the queue or exchange.
        queue: Its name.
        is_stream: Whether it is a stream.
    """

    vhost: str
    queue: str
    is_stream: bool = False


def message_batch(
    rows: RecordRows,
    view: SegmentView,
    columns: Sequence[str],
    label: Label,
    delivered: array[int],
    bodies: BodyReader | None = None,
) -> Any:
    """Return messages as a record batch.

    Args:
        rows: The messages.
        view: The segment that has them.
        columns: Names of the columns, in order.
        label: Name of their queue.
        delivered: Ranges of sequence numbers of redelivered messages; see in_ranges().
        bodies: Reads the bodies; None if the columns `value` and `value_error` are not among the columns.
    """
    names = frozenset(columns)
    if not reads_values(names):
        bodies = None
    slices = property_slices(rows, _properties(names) | (frozenset() if bodies is None else PROPERTIES_OF_BODIES))
    values = {} if bodies is None else _values(rows, slices, bodies)
    tables = None
    if not names.isdisjoint(HEADERS):
        tables = _header_columns(rows.octets, slices["headers"])
    arrays = []
    for name in columns:
        if tables is not None and name in HEADERS:
            arrays.append(tables.column(name))
        elif name in values:
            arrays.append(values[name])
        elif name in PROPERTIES:
            arrays.append(property_column(rows, name, slices[name]))
        elif name == "vhost":
            arrays.append(constant(label.vhost, pa.string(), len(rows.at)))
        elif name in ("queue", "delayed_in"):
            arrays.append(constant(label.queue, pa.string(), len(rows.at)))
        elif name == "queue_id":
            arrays.append(constant(view.qid, pa.int64(), len(rows.at)))
        elif name == "store_priority":
            arrays.append(constant(view.priority, pa.int32(), len(rows.at)))
        elif name == "stream_offset":
            arrays.append(_stream_offsets(rows, label.is_stream))
        elif name == "redelivered":
            arrays.append(pa.array(in_ranges(rows.seq, delivered)))
        else:
            arrays.append(_PLAIN[name](rows))
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _values(rows: RecordRows, slices: dict[str, Slices], bodies: BodyReader) -> dict[str, Any]:
    # Imported late, since it takes long to load and few queries need it.
    from leveret.analytics.bodies.value_columns import value_columns

    return value_columns(rows, slices, bodies)


def _header_columns(octets: bytes, slices: Slices) -> HeaderColumns:
    # Imported late, since it takes long to load and few queries need it.
    from leveret.analytics.rows.header_columns import HeaderColumns

    return HeaderColumns(octets, slices)


def _stream_offsets(rows: RecordRows, is_stream: bool) -> Any:
    if not is_stream:
        return pa.nulls(len(rows.at), pa.int64())
    return pa.array(rows.seq.astype(np.int64) - 1)


def _properties(names: frozenset[str]) -> frozenset[str]:
    found = names & PROPERTIES.keys()
    return found if names.isdisjoint(HEADERS) else found | {"headers"}


def _exchange_end(rows: RecordRows) -> Positions:
    start = rows.route_at
    return start + 1 + rows.bytes8[start]


def _body(rows: RecordRows) -> Any:
    start = rows.body_at
    return binary_slices(rows.octets, start, start + rows.body_len)


_PLAIN: Final[dict[str, Callable[[RecordRows], Any]]] = {
    "seq": lambda rows: pa.array(rows.seq.astype(np.int64)),
    "enqueued_at": lambda rows: times(rows.arrived),
    "published_at": lambda rows: times(rows.arrived),
    "due_at": lambda rows: times(rows.expires),
    "expires_at": lambda rows: times(rows.expires, rows.expires > 0),
    "exchange": lambda rows: text_slices(rows.octets, rows.route_at + 1, _exchange_end(rows)),
    "routing_key": lambda rows: text_slices(rows.octets, _exchange_end(rows) + 1, rows.props_at),
    "persistent": lambda rows: pa.array((rows.flags & PERSISTENT).astype(np.bool_)),
    "body_bytes": lambda rows: pa.array(rows.body_len),
    "body": _body,
}
