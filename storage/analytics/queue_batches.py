"""Segments and queues as rows: from manifests, and from the heads of records where manifests do not tell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from leveret.storage.analytics.columns import TABLES
from leveret.storage.analytics.partitions import is_told
from leveret.storage.analytics.record_rows import RowDamage, RowLimits, select_rows
from leveret.storage.format import Stream
from leveret.storage.snapshots.segments import SegmentView
from leveret.storage.snapshots.snapshot import QueueView

ARROW_TYPES: Final[dict[str, Any]] = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}


class Depth(NamedTuple):
    """What lives in a segment.

    Attributes:
        messages: How many.
        body_bytes: Sum of their body lengths.
        oldest: When the first of them came, in microseconds; None if none lives.
        newest: When the last of them came.
        last_seq: The number of the last of them; 0 if none lives.
        records: How many there are, dead ones too.
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
    """Find out what lives in a segment.

    Args:
        view: Which one.
        cut: Only messages that came until then; microseconds.
        read: Reads its file, if that is needed.
    """
    if is_told(view) and view.max_arrived <= cut:
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
    """Segments, their rows of the table `segments`, and what lives in each."""
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
    """A row of the table `queues`.

    Args:
        queue: Which one.
        cut: When, in microseconds.
        segments: Its rows of the table `segments`.
    """
    living = [row for row in segments if row["messages"]]
    return {
        "vhost": queue.vhost,
        "queue": queue.name,
        "queue_id": queue.qid,
        "durable": queue.durable,
        "messages": sum(row["messages"] for row in segments),
        "body_bytes": sum(row["body_bytes"] for row in segments),
        "file_bytes": sum(row["file_bytes"] for row in segments),
        "oldest_at": min((row["oldest_at"] for row in living), default=None),
        "newest_at": max((row["newest_at"] for row in living), default=None),
        "segments": len(segments),
        "as_of": cut,
    }


def rows_batch(table: str, columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> Any:
    """Rows as a record batch."""
    arrays = [pa.array([row[name] for row in rows], ARROW_TYPES[TABLES[table][name]]) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))
