"""Divides a snapshot into partitions, which can be sent to workers."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from leveret.analytics.archive.manifests import ArchivePart
from leveret.analytics.options import Options
from leveret.analytics.selection import RowLimits, Selection
from leveret.storage.directory.queue_names import QueueName
from leveret.storage.readers.reader_file import matches
from leveret.storage.snapshots.lease import SnapshotLease
from leveret.storage.snapshots.segments import SegmentView
from leveret.storage.snapshots.snapshot import EventFileView, QueueView, Snapshot


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


#: Small segments are combined into larger tasks only while at least this many tasks remain.
_TASKS_MIN: Final = 64
#: Maximum size in bytes of a task that combines small segments.
_SMALL_TASK_BYTES: Final = 4 << 20
#: Maximum microseconds between the time of an event and the start of the file that contains it.
_WRITE_DELAY_MAX: Final = 600_000_000
#: Size in bytes of a full segment. A longer one has a single very long message.
_FULL_BYTES: Final = 16 << 20


class SnapshotLocation(NamedTuple):
    """Location of a snapshot.

    Attributes:
        location: Path or URI of the data directory.
        lease: Path of the snapshot's directory; empty if it has none.
        cut: Time at which the snapshot ends, in microseconds since 1970.
        store_id: Id of the data directory.
        damage_dir: Path of the directory in which damage is recorded; empty for none.
    """

    location: str
    lease: str
    cut: int
    store_id: bytes
    damage_dir: str = ""


class SegmentPart(NamedTuple):
    """A segment to read.

    Attributes:
        view: The segment.
        label: Name of its queue.
        delivered: Ranges of sequence numbers of redelivered messages.
        limits: Limits on sequence numbers and times.
    """

    view: SegmentView
    label: Label
    delivered: array[int]
    limits: RowLimits


@dataclass
class MessagesPartition:
    """Segments of any queues."""

    place: SnapshotLocation
    parts: list[SegmentPart]


#: The option `vhost`, and the allowed values of the column; None for all.
VirtualHosts: TypeAlias = tuple[str | None, frozenset[str] | None]


def _is_selected(vhost: str | None, vhosts: VirtualHosts) -> bool:
    pattern, allowed = vhosts
    return vhost is not None and matches(vhost, pattern) and (allowed is None or vhost in allowed)


@dataclass
class EventsPartition:
    """A part of an event-log file.

    Attributes:
        wanted: Ids of the selected queues, and 0 for events without a queue; None for all.
        vhosts: Of which virtual hosts events without a queue are selected.
    """

    place: SnapshotLocation
    view: EventFileView
    start: int
    limits: RowLimits
    wanted: frozenset[int] | None
    names: dict[int, QueueName] = field(default_factory=dict)
    vhosts: VirtualHosts = (None, None)

    def wants_vhost(self, vhost: str | None) -> bool:
        """Return whether events of a virtual host are selected."""
        return _is_selected(vhost, self.vhosts)


@dataclass
class OlderEventsPartition:
    """Events that the broker does not keep any more, in files of an archive.

    Attributes:
        place: Location of the snapshot with the later ones.
        part: The files.
        shared: How often which events are left out, because the event log has them, too; see event_keys().
    """

    place: SnapshotLocation
    part: ArchivePart
    shared: Mapping[tuple[Any, ...], int] = field(default_factory=dict)


@dataclass
class QueuesPartition:
    """Queues to summarize; only segments whose manifest is not sufficient are read."""

    place: SnapshotLocation
    queues: list[QueueView]


@dataclass
class AuditPartition:
    """A file of the audit log, or a part of it.

    Attributes:
        file: The time in the name of the file, in microseconds since 1970.
        path: Its path.
        limits: Limits on the times of the lines.
        vhosts: Which virtual hosts are wanted.
        start: Offset of the first line.
        end: Offset after the last one; None for the end of the file.
        but: Virtual hosts whose lines are left out, as the option `vhost` names them.
    """

    place: SnapshotLocation
    file: int
    path: str
    limits: RowLimits
    vhosts: VirtualHosts
    start: int = 0
    end: int | None = None
    but: str | None = None

    def wants(self, record: Mapping[str, Any]) -> bool:
        """Return whether a line is selected."""
        vhost = record.get("vhost")
        if not self.limits.first_time <= record["at"] <= self.limits.last_time:
            return False
        if self.but is not None and vhost is not None and matches(vhost, self.but):
            return False
        return self.vhosts == (None, None) or _is_selected(vhost, self.vhosts)


#: A part of a table of a data directory that one task reads.
Partition: TypeAlias = MessagesPartition | EventsPartition | OlderEventsPartition | QueuesPartition | AuditPartition


@dataclass
class LivePart:
    """A part of a data directory that is read together with an archive.

    Attributes:
        broker: Name of the broker.
    """

    partition: Partition
    broker: str


#: A part of any table that one task reads.
Part: TypeAlias = Partition | LivePart | ArchivePart


class Plan(NamedTuple):
    """What a query reads.

    Attributes:
        parts: The parts of the table, in order.
        leases: Keep the files of the parts.
    """

    parts: list[Part]
    leases: list[SnapshotLease]


def locate_snapshot(snapshot: Snapshot, location: str, session: str = "") -> SnapshotLocation:
    """Return the location of a snapshot; without a lease, damage is recorded in the session's directory."""
    lease = snapshot.lease.path if snapshot.lease is not None else ""
    return SnapshotLocation(location, lease, snapshot.cut.time, snapshot.store_id, lease or session)


def message_partitions(
    snapshot: Snapshot, place: SnapshotLocation, limits: RowLimits, per_partition: int
) -> Iterator[MessagesPartition]:
    """Yield groups of segments; segments without selected messages are omitted."""
    parts = [
        SegmentPart(view, Label(queue.vhost, queue.name, queue.is_stream), store.delivered, limits)
        for queue in snapshot.queues
        for store in queue.stores
        for view in store.segments
        if may_match(view, limits)
    ]
    for group in group_parts(parts, per_partition):
        yield MessagesPartition(place, group)


def group_parts(parts: Sequence[SegmentPart], per_partition: int) -> Iterator[list[SegmentPart]]:
    """Group segments into tasks, in order.

    Args:
        per_partition: Number of full segments per task. A task reads small segments up to the same size, or more
            where there would be very many small tasks.
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
    """Return the approximate number of bytes to read."""
    if view.sealed:
        return view.data_len
    try:
        return os.path.getsize(view.path)
    except OSError:
        # The file is remote, or is being moved.
        return _SMALL_TASK_BYTES


def may_match(view: SegmentView, limits: RowLimits) -> bool:
    """Return whether a segment can have selected messages, without opening it."""
    if view.last_seq < limits.first_seq or view.first_seq > limits.last_seq:
        return False
    return not view.sealed or (view.max_arrived >= limits.first_time and view.min_arrived <= limits.last_time)


def event_times(view: EventFileView) -> tuple[int, int]:
    """Return the first and the last time that events of a file can have."""
    return view.file - _WRITE_DELAY_MAX, view.until


def event_queue_ids(snapshot: Snapshot, options: Options, selection: Selection) -> frozenset[int] | None:
    """Return the ids of the queues whose events are selected, and 0 for events without one; None for all."""
    if options.vhost is None and options.queue is None and not selection.names and selection.readable is None:
        return None
    names_queue = options.queue is not None or "queue" in selection.names
    found = frozenset(
        qid
        for qid, name in snapshot.names.items()
        if options.wants(name.vhost, name.name)
        and selection.wants(name.vhost, name.name)
        and not (names_queue and name.kind != "queue")
    )
    return found if names_queue else found | {0}


def vhosts_of(options: Options, selection: Selection) -> VirtualHosts:
    """Return which virtual hosts are selected."""
    allowed = selection.names.get("vhost")
    if selection.readable is not None:
        # Such events say which exchange refused a message, not which queue.
        whole = frozenset(vhost for vhost, names in selection.readable.items() if names is None)
        allowed = whole if allowed is None else allowed & whole
    return options.vhost, allowed


def event_partitions(
    snapshot: Snapshot,
    place: SnapshotLocation,
    limits: RowLimits,
    wanted: frozenset[int] | None,
    vhosts: VirtualHosts = (None, None),
    step: int = 4 << 20,
) -> Iterator[EventsPartition]:
    """Yield parts of the event log; files outside the time limits are omitted.

    Args:
        wanted: See EventsPartition.
        vhosts: See EventsPartition.
        step: Maximum size of a part in bytes.
    """
    names = dict(snapshot.names)
    for view in snapshot.events:
        first, last = event_times(view)
        if last >= limits.first_time and first <= limits.last_time:
            for start in range(0, view.end, step // 40 * 40):
                end = min(view.end, start + step // 40 * 40)
                part = EventFileView(view.path, view.file, end, view.until)
                yield EventsPartition(place, part, start, limits, wanted, names, vhosts)


def queue_partitions(snapshot: Snapshot, place: SnapshotLocation, limit: int = 64 << 20) -> Iterator[QueuesPartition]:
    """Yield groups of queues; each has at most `limit` bytes to read, or is a single queue."""
    group: list[QueueView] = []
    filled = 0
    for queue in snapshot.queues:
        size = sum(_bytes_of(view) for store in queue.stores for view in store.segments if not manifest_suffices(view))
        if group and (filled + size > limit or len(group) >= 1000):
            yield QueuesPartition(place, group)
            group, filled = [], 0
        group.append(queue)
        filled += size
    if group:
        yield QueuesPartition(place, group)


def manifest_suffices(view: SegmentView) -> bool:
    """Return whether a segment's manifest has its exact counts: no record has been settled or is missing."""
    return view.gapless and view.live_numbers == view.records
