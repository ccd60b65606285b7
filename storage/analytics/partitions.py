"""What tasks read: parts of a snapshot that can be sent to another machine."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pyspark.sql.datasource import InputPartition

from leveret.storage.analytics.message_batches import Label
from leveret.storage.analytics.record_rows import RowLimits
from leveret.storage.directory.queue_names import QueueName
from leveret.storage.snapshots.segments import SegmentView
from leveret.storage.snapshots.snapshot import EventFileView, QueueView, Snapshot

#: Tasks are not made larger to get fewer than this many, nor larger than this many bytes.
_TASKS_MIN: Final = 64
_SMALL_TASK_BYTES: Final = 4 << 20
#: Microseconds from an event to the beginning of the file that it is written to, at most.
_WRITTEN_LATE: Final = 600_000_000
#: A longer segment has one very long message.
_FULL_BYTES: Final = 16 << 20


class Place(NamedTuple):
    """Where a snapshot is.

    Attributes:
        location: Path or URI of the data directory.
        lease: Path of the snapshot's directory; empty if it has none.
        notes: Path of a directory to note damage in; empty if there is none.
        cut: When it was taken, in microseconds since 1970.
        store_id: Names the data directory.
    """

    location: str
    lease: str
    cut: int
    store_id: bytes
    notes: str = ""


class SegmentPart(NamedTuple):
    """A segment to read.

    Attributes:
        view: The segment.
        label: Its queue.
        delivered: Ranges of numbers that had been delivered before.
        limits: What of it is wanted.
        dead_too: Whether messages are wanted that are dead.
    """

    view: SegmentView
    label: Label
    delivered: array[int]
    limits: RowLimits
    dead_too: bool = False


@dataclass
class MessagesPartition(InputPartition):
    """Some segments."""

    place: Place
    parts: list[SegmentPart]


@dataclass
class EventsPartition(InputPartition):
    """A part of a file of the event log."""

    place: Place
    view: EventFileView
    start: int
    limits: RowLimits
    wanted: frozenset[int] | None
    names: dict[int, QueueName] = field(default_factory=dict)


@dataclass
class QueuesPartition(InputPartition):
    """Some queues, of which only what their manifests do not tell is read."""

    place: Place
    queues: list[QueueView]


def place_of(snapshot: Snapshot, location: str, session: str = "") -> Place:
    """Where a snapshot is, and where a session that has no directory there keeps notes."""
    lease = snapshot.lease.path if snapshot.lease is not None else ""
    return Place(location, lease, snapshot.cut.time, snapshot.store_id, lease or session)


def message_partitions(
    snapshot: Snapshot, place: Place, limits: RowLimits, per_partition: int
) -> Iterator[MessagesPartition]:
    """Groups of segments; those that cannot have anything wanted are left out."""
    parts = [
        SegmentPart(view, Label(queue.vhost, queue.name), store.delivered, limits)
        for queue in snapshot.queues
        for store in queue.stores
        for view in store.segments
        if may_have(view, limits)
    ]
    for group in group_parts(parts, per_partition):
        yield MessagesPartition(place, group)


def group_parts(parts: Sequence[SegmentPart], per_partition: int) -> Iterator[list[SegmentPart]]:
    """Put segments together for tasks, in order.

    Args:
        parts: The segments, of any queues.
        per_partition: How many full ones a task reads; of small ones as many as that makes, or more if that would
            make very many small tasks.
    """
    sizes = [_bytes_of(part.view) for part in parts]
    full = min(max(sizes, default=0), _FULL_BYTES)
    most = max(per_partition * full, min(sum(sizes) // _TASKS_MIN, _SMALL_TASK_BYTES))
    group: list[SegmentPart] = []
    filled = 0
    for part, size in zip(parts, sizes, strict=True):
        if group and filled + size > most:
            yield group
            group, filled = [], 0
        group.append(part)
        filled += size
    if group:
        yield group


def _bytes_of(view: SegmentView) -> int:
    """About how much there is to be read."""
    if view.sealed:
        return view.data_len
    try:
        return os.path.getsize(view.path)
    except OSError:
        # It is on another machine, or about to be moved.
        return _SMALL_TASK_BYTES


def may_have(view: SegmentView, limits: RowLimits) -> bool:
    """Whether a segment may have something that is wanted, as far as one can tell without opening it."""
    if view.last_seq < limits.first_seq or view.first_seq > limits.last_seq:
        return False
    return not view.sealed or (view.max_arrived >= limits.first_time and view.min_arrived <= limits.last_time)


def event_partitions(
    snapshot: Snapshot, place: Place, limits: RowLimits, wanted: frozenset[int] | None, step: int = 4 << 20
) -> Iterator[EventsPartition]:
    """Parts of the event log; files of another time are left out."""
    names = dict(snapshot.names)
    for view in snapshot.events:
        if view.until >= limits.first_time and view.file - _WRITTEN_LATE <= limits.last_time:
            for start in range(0, view.end, step // 40 * 40):
                end = min(view.end, start + step // 40 * 40)
                part = EventFileView(view.path, view.file, end, view.until)
                yield EventsPartition(place, part, start, limits, wanted, names)


def queue_partitions(snapshot: Snapshot, place: Place, limit: int = 64 << 20) -> Iterator[QueuesPartition]:
    """Queues in groups of which so many bytes have to be read at most, or that are one queue."""
    group: list[QueueView] = []
    filled = 0
    for queue in snapshot.queues:
        size = sum(_bytes_of(view) for store in queue.stores for view in store.segments if not is_told(view))
        if group and (filled + size > limit or len(group) >= 1000):
            yield QueuesPartition(place, group)
            group, filled = [], 0
        group.append(queue)
        filled += size
    if group:
        yield QueuesPartition(place, group)


def is_told(view: SegmentView) -> bool:
    """Whether all that counts about a segment is in its manifest: nothing in it is dead, and none came too late."""
    return view.gapless and view.live_numbers == view.records
