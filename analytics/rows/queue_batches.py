"""Rows of the tables `segments` and `queues`: from manifests, or from record headers where those do not suffice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from leveret.analytics.arrow_schema import arrow_schema
from leveret.analytics.partitions import manifest_suffices
from leveret.analytics.rows.record_rows import RowDamage, RowLimits, select_rows
from leveret.storage.format import Stream
from leveret.storage.snapshots.segments import SegmentView
from leveret.storage.snapshots.snapshot import QueueView


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
        view: The segment.
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
        queue: The queue.
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
    schema = arrow_schema(table, columns)
    arrays = [pa.array([row[each.name] for row in rows], each.type) for each in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
