"""What tasks read: parts of a snapshot that can be sent to another machine."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from pyspark.sql.datasource import InputPartition

from storage.analytics.message_batches import Label
from storage.analytics.record_rows import Limits
from storage.directory.queue_names import QueueName
from storage.snapshots.segments import SegmentView
from storage.snapshots.snapshot import EventFileView, QueueView, Snapshot


class Place(NamedTuple):
    """Where a snapshot is.

    Attributes:
        location: Path or URI of the data directory.
        lease: Path of the snapshot's directory; empty if it has none.
        cut: When it was taken, in microseconds since 1970.
        store_id: Names the data directory.
    """

    location: str
    lease: str
    cut: int
    store_id: bytes


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
    limits: Limits
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
    limits: Limits
    wanted: frozenset[int] | None
    names: dict[int, QueueName] = field(default_factory=dict)


@dataclass
class QueuesPartition(InputPartition):
    """Some queues, of which only what their manifests do not tell is read."""

    place: Place
    queues: list[QueueView]


def place_of(snapshot: Snapshot, location: str) -> Place:
    """Where a snapshot is."""
    return Place(
        location, snapshot.lease.path if snapshot.lease is not None else "", snapshot.cut.time, snapshot.store_id
    )


def message_partitions(
    snapshot: Snapshot, place: Place, limits: Limits, per_partition: int
) -> Iterator[MessagesPartition]:
    """Groups of segments of one queue; those that cannot have anything wanted are left out."""
    for queue in snapshot.queues:
        parts = [
            SegmentPart(view, Label(queue.vhost, queue.name), store.delivered, limits)
            for store in queue.stores
            for view in store.segments
            if may_have(view, limits)
        ]
        for at in range(0, len(parts), per_partition):
            yield MessagesPartition(place, parts[at : at + per_partition])


def may_have(view: SegmentView, limits: Limits) -> bool:
    """Whether a segment may have something that is wanted, as far as one can tell without opening it."""
    if view.last_seq < limits.first_seq or view.first_seq > limits.last_seq:
        return False
    return not view.sealed or (view.max_arrived >= limits.first_time and view.min_arrived <= limits.last_time)


def event_partitions(
    snapshot: Snapshot, place: Place, limits: Limits, wanted: frozenset[int] | None, step: int = 4 << 20
) -> Iterator[EventsPartition]:
    """Parts of the event log; files of another time are left out."""
    names = dict(snapshot.names)
    for view in snapshot.events:
        if view.until >= limits.first_time and view.file <= limits.last_time:
            for start in range(0, view.end, step // 40 * 40):
                end = min(view.end, start + step // 40 * 40)
                part = EventFileView(view.path, view.file, end, view.until)
                yield EventsPartition(place, part, start, limits, wanted, names)


def queue_partitions(snapshot: Snapshot, place: Place, limit: int = 16) -> Iterator[QueuesPartition]:
    """Queues in groups that have so many segments to open at the most, or are one queue."""
    group: list[QueueView] = []
    open_segments = 0
    for queue in snapshot.queues:
        count = sum(not is_told(view) for store in queue.stores for view in store.segments)
        if group and (open_segments + count > limit or len(group) >= 1000):
            yield QueuesPartition(place, group)
            group, open_segments = [], 0
        group.append(queue)
        open_segments += count
    if group:
        yield QueuesPartition(place, group)


def is_told(view: SegmentView) -> bool:
    """Whether all that counts about a segment is in its manifest: nothing in it is dead, and none came too late."""
    return view.gapless and view.live_numbers == view.records
