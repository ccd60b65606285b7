"""The parts of a dataset: what is known of the rows of each before it is opened, and how it is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from operator import and_
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from leveret.analytics.bodies.body_format import BodyFormat
from leveret.analytics.bodies.body_options import reads_values
from leveret.analytics.options import Options
from leveret.analytics.partitions import (
    EventsPartition,
    MessagesPartition,
    Partition,
    QueuesPartition,
    SegmentPart,
    event_times,
)
from leveret.analytics.table_reading import read_partition

_TIME: Final = pa.timestamp("us", tz="UTC")
_SEQ_MAX: Final = (1 << 63) - 1

#: Yields the rows of a part; takes the names of the columns, and the condition of the query, or None.
ReadPart: TypeAlias = Callable[[Sequence[str], Any], Iterator[Any]]


class DatasetPart(NamedTuple):
    """A part of a dataset.

    Attributes:
        known: An expression that is true of all its rows.
        read: Reads it. It may leave out what the condition of the query excludes.
    """

    known: Any
    read: ReadPart


def live_parts(
    partitions: Sequence[Partition], options: Options, bodies: BodyFormat | None = None
) -> Iterator[DatasetPart]:
    """Yield the parts of a table of a data directory.

    Args:
        partitions: Its partitions.
        options: Options of the data source.
        bodies: How bodies are read; None if there is no column for their values.
    """
    for each in partitions:
        for known, piece in _pieces(each, options.table):
            yield DatasetPart(known, partial(_read_live, piece, options, bodies))


def all_of(known: Sequence[Any]) -> Any:
    """Return the expression that is true if all of some are."""
    return reduce(and_, known, pc.scalar(True))


def between(column: str, first: int, last: int) -> Any:
    """Return the expression that a time is in a range of microseconds since 1970."""
    field = pc.field(column)
    return (field >= pa.scalar(first, _TIME)) & (field <= pa.scalar(last, _TIME))


def _pieces(partition: Partition, table: str) -> Iterator[tuple[Any, Partition]]:
    """Yield pieces of a partition of which something is known."""
    if isinstance(partition, MessagesPartition):
        for part in partition.parts:
            yield _known_of_segment(part, table), MessagesPartition(partition.place, [part])
    elif isinstance(partition, QueuesPartition):
        for queue in partition.queues:
            known = [pc.field("vhost") == queue.vhost, pc.field("queue") == queue.name]
            yield all_of([*known, pc.field("queue_id") == queue.qid]), QueuesPartition(partition.place, [queue])
    elif isinstance(partition, EventsPartition):
        times = event_times(partition.view)
        yield between("at", *times) & between("event_at", *times), partition
    else:
        yield pc.scalar(True), partition


def _known_of_segment(part: SegmentPart, table: str) -> Any:
    view, label = part.view, part.label
    seq = pc.field("seq")
    known = [pc.field("vhost") == label.vhost, seq >= view.first_seq, seq <= min(view.last_seq, _SEQ_MAX)]
    if table == "delayed":
        known.append(pc.field("delayed_in") == label.queue)
    else:
        known += [pc.field("queue") == label.queue, pc.field("queue_id") == view.qid]
    if view.sealed:
        arrived = "published_at" if table == "delayed" else "enqueued_at"
        known.append(between(arrived, view.min_arrived, view.max_arrived))
    return all_of(known)


def _read_live(
    partition: Partition, options: Options, bodies: BodyFormat | None, columns: Sequence[str], _condition: Any
) -> Iterator[Any]:
    form = bodies if reads_values(columns) else None
    return read_partition(partition, options.table, columns, options.fail_fast, form)
