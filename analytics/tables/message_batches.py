"""Converts messages, segments and queues to Arrow record batches; of messages only the selected columns are decoded."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from leveret.analytics.arrow_schema import schema_of
from leveret.analytics.columns import HEADERS, PROPERTIES, PROPERTIES_OF_BODIES, TABLES, reads_values
from leveret.analytics.rows.property_slices import (
    Slices,
    binary_slices,
    constant,
    property_column,
    property_slices,
    text_slices,
    times,
)
from leveret.analytics.rows.record_rows import Positions, RecordRows, RowDamage, in_ranges, select_rows
from leveret.analytics.selection import RowLimits
from leveret.analytics.tables.partitions import Label, manifest_suffices
from leveret.storage.format import PERSISTENT, Stream
from leveret.storage.snapshots.segments import SegmentView
from leveret.storage.snapshots.snapshot import QueueView

if TYPE_CHECKING:
    from leveret.analytics.bodies.payloads import BodyReader
    from leveret.analytics.rows.header_columns import HeaderColumns


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
    from leveret.analytics.bodies.payloads import value_columns

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


class Depth(NamedTuple):
    """Totals of the messages in a segment that are not settled.

    Attributes:
        messages: Number of messages.
        body_bytes: Sum of their body lengths.
        oldest: Time of the oldest message, in microseconds since 1970; None without messages.
        newest: Time of the newest message, in microseconds since 1970; None without messages.
        last_seq: Sequence number of the last message; 0 without messages.
        records: Number of records, including settled ones.
        damage: Messages that could not be read.
    """

    messages: int
    body_bytes: int
    oldest: int | None
    newest: int | None
    last_seq: int
    records: int
    damage: RowDamage = RowDamage()


def depth_of(view: SegmentView, cut: int, read: Callable[[SegmentView], bytes]) -> Depth:
    """Count the messages in a segment that are not settled.

    Args:
        cut: Time at which the snapshot ends, in microseconds since 1970; later messages are not counted.
        read: Reads the segment's file; called only if the manifest is not sufficient.
    """
    if manifest_suffices(view) and view.max_arrived <= cut:
        return Depth(view.records, view.body_bytes, view.min_arrived, view.max_arrived, view.last_seq, view.records)
    rows = select_rows(read(view), view, cut, RowLimits(), view.live)
    records = view.records if view.sealed else rows.records
    if not len(rows.at):
        return Depth(0, 0, None, None, 0, records, rows.damage)
    times = int(rows.arrived.min()), int(rows.arrived.max())
    return Depth(len(rows.at), int(rows.body_len.sum()), *times, int(rows.seq[-1]), records, rows.damage)


def segment_rows(
    queue: QueueView, cut: int, read: Callable[[SegmentView], bytes], size: Callable[[SegmentView], int]
) -> Iterable[tuple[SegmentView, dict[str, Any], Depth]]:
    """Yield each segment with its row of the table `segments` and its totals."""
    for store in queue.stores:
        for view in store.segments:
            depth = depth_of(view, cut, read)
            yield (
                view,
                {
                    "vhost": queue.vhost,
                    "queue": queue.name,
                    "queue_id": queue.qid,
                    "priority": store.priority,
                    "first_seq": view.first_seq,
                    "last_seq": view.last_seq if view.sealed else max(view.first_seq, depth.last_seq),
                    "generation": view.generation,
                    "sealed": view.sealed,
                    "persistent": view.stream == Stream.DURABLE,
                    "records": depth.records,
                    "messages": depth.messages,
                    "body_bytes": depth.body_bytes,
                    "file_bytes": size(view),
                    "oldest_at": depth.oldest,
                    "newest_at": depth.newest,
                },
                depth,
            )


def queue_row(queue: QueueView, cut: int, segments: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the row of a queue in the table `queues`.

    Args:
        cut: Time at which the snapshot ends, in microseconds since 1970.
        segments: Rows of the queue in the table `segments`.
    """
    filled = [row for row in segments if row["messages"]]
    return {
        "vhost": queue.vhost,
        "queue": queue.name,
        "queue_id": queue.qid,
        "durable": queue.durable,
        "messages": sum(row["messages"] for row in segments),
        "body_bytes": sum(row["body_bytes"] for row in segments),
        "file_bytes": sum(row["file_bytes"] for row in segments),
        "oldest_at": min((row["oldest_at"] for row in filled), default=None),
        "newest_at": max((row["newest_at"] for row in filled), default=None),
        "segments": len(segments),
        "as_of": cut,
    }


def rows_batch(table: str, columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> Any:
    """Return rows as a record batch."""
    schema = schema_of(TABLES[table], columns)
    arrays = [pa.array([row[each.name] for row in rows], each.type) for each in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
