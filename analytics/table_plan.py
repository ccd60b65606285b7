"""Takes the snapshot of a query and divides its table into partitions; the same for Spark and for Arrow."""

from __future__ import annotations

from typing import NamedTuple

from leveret.analytics.older_events import events_until, older_events
from leveret.analytics.options import Options
from leveret.analytics.partitions import (
    Partition,
    VirtualHosts,
    event_partitions,
    locate_snapshot,
    message_partitions,
    queue_partitions,
)
from leveret.analytics.query_snapshots import load_shared_snapshot, take_query_snapshot
from leveret.analytics.selection import Selection
from leveret.analytics.stream_offsets import check_streams
from leveret.storage.readers.reader_file import matches
from leveret.storage.snapshots.lease import SnapshotLease
from leveret.storage.snapshots.snapshot import NoSuchMomentError, NoSuchQueueError, Snapshot


class TablePlan(NamedTuple):
    """What a query reads.

    Attributes:
        partitions: The parts of the table, in order.
        lease: Keeps the files of the partitions; None if they need none.
    """

    partitions: list[Partition]
    lease: SnapshotLease | None


def plan_table(options: Options, selection: Selection, session: str = "") -> TablePlan:
    """Take a snapshot, or load the shared one that the options name, and divide it into partitions.

    A snapshot without partitions is released at once, unless it is shared.

    Args:
        options: Options of the data source; their limits are not used.
        selection: The rows to read.
        session: Directory in which the snapshot is recorded for the process that renews its lease; empty for none.
    Raises:
        DataDirectoryError: The path is not a data directory, or a newer version wrote it.
        SnapshotError: No snapshot can be taken, or the queue does not exist.
        AnalyticsError: The shared snapshot does not exist, or is of another directory or time. A range of offsets is
            for a queue that is no stream.
        DamagedRecordError: Data of that moment is damaged or gone, and `fail_fast` is set.
    """
    try:
        snapshot = _take(options, selection, session)
    except NoSuchMomentError as error:
        if options.table != "events":
            raise
        return TablePlan(list(events_until(options, selection, session, error)), None)
    try:
        check_streams(snapshot, options.starting, options.ending)
    except BaseException:
        if not options.snapshot:
            snapshot.close()
        raise
    place = locate_snapshot(snapshot, options.path, session)
    found: list[Partition]
    if options.table in ("messages", "delayed"):
        found = list(message_partitions(snapshot, place, selection.limits, options.segments_per_partition))
    elif options.table == "events":
        wanted = event_queue_ids(snapshot, options, selection)
        found = [
            *older_events(snapshot, place, options, selection),
            *event_partitions(snapshot, place, selection.limits, wanted, vhosts_of(options, selection)),
        ]
    else:
        found = list(queue_partitions(snapshot, place))
    if not found and not options.snapshot:
        snapshot.close()
    return TablePlan(found, snapshot.lease if found else None)


def _take(options: Options, selection: Selection, session: str) -> Snapshot:
    def wants(vhost: str, queue: str) -> bool:
        return options.wants(vhost, queue) and selection.wants(vhost, queue)

    described = options.described if not selection.names else None
    events = options.table == "events"
    if options.snapshot:
        snapshot = load_shared_snapshot(options, wants, described, session)
    else:
        snapshot = take_query_snapshot(options, wants, described, not events, events, session)
    try:
        if not selection.names:
            _check_named(options, snapshot)
    except BaseException:
        if not options.snapshot:
            snapshot.close()
        raise
    return snapshot


def _check_named(options: Options, snapshot: Snapshot) -> None:
    """Check that all queues of a list exist.

    Raises:
        NoSuchQueueError: One does not.
    """
    named = options.named_queues
    if options.described is None and named:
        # Deleted queues have events.
        names = snapshot.names.values() if options.table == "events" else snapshot.queues
        known = {each.name for each in names if each.kind == "queue" and matches(each.vhost, options.vhost)}
        for queue in named:
            if queue not in known:
                raise NoSuchQueueError(f"{options.path} has no queue {options.description_of(queue)}")


def event_queue_ids(snapshot: Snapshot, options: Options, selection: Selection) -> frozenset[int] | None:
    """Return the ids of the queues whose events are selected, and 0 for events without one; None for all."""
    if options.vhost is None and options.queue is None and not selection.names:
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
    return options.vhost, selection.names.get("vhost")
