"""Takes the snapshots of a query and divides its table into parts; the same for Spark and for Arrow."""

from __future__ import annotations

from leveret.analytics.archive.layout import Sources
from leveret.analytics.options import Options
from leveret.analytics.selection import Selection
from leveret.analytics.tables.audit_rows import audit_partitions
from leveret.analytics.tables.older_events import events_until, older_events
from leveret.analytics.tables.partitions import (
    Part,
    Plan,
    event_partitions,
    event_queue_ids,
    locate_snapshot,
    message_partitions,
    queue_partitions,
    vhosts_of,
)
from leveret.analytics.tables.query_snapshots import check_streams, load_shared_snapshot, take_query_snapshot
from leveret.storage.readers.reader_file import matches
from leveret.storage.snapshots.snapshot import NoSuchMomentError, NoSuchQueueError, Snapshot


def plan_query(options: Options, sources: Sources | None, selection: Selection, session: str = "") -> Plan:
    """Divide a table into parts: that of an archive with data directories, or of a data directory alone.

    Args:
        options: Options of the data source; their limits are not used.
        sources: The archive that is read, and data directories with it; None for a data directory alone.
        selection: The rows to read.
        session: Directory in which snapshots are recorded for the process that renews their leases; empty for none.
    Raises:
        OptionError: An option does not apply to archives.
        AnalyticsError, DataDirectoryError, SnapshotError, ArchiveError, DamagedRecordError: As plan_table() and
            plan_archive() do.
    """
    if sources is None:
        return plan_table(options, selection, session)
    # Data directories are read without what archives need.
    from leveret.analytics.tables.archive_plan import plan_archive

    return plan_archive(sources, options.for_archive(), selection, session)


def plan_table(options: Options, selection: Selection, session: str = "") -> Plan:
    """Take a snapshot, or load the shared one that the options name, and divide it into partitions.

    A snapshot without partitions is released at once, unless it is shared.

    Args:
        options: Options of the data source; their limits are not used.
        session: Directory in which the snapshot is recorded for the process that renews its lease; empty for none.
    Raises:
        DataDirectoryError: The path is not a data directory, or a newer version wrote it.
        SnapshotError: No snapshot can be taken, or the queue does not exist.
        AnalyticsError: The shared snapshot does not exist, or is of another directory or time. A range of offsets is
            for a queue that is no stream.
        DamagedRecordError: Data of that moment is damaged or gone, and `fail_fast` is set.
    """
    if options.table == "audit":
        return Plan(list(audit_partitions(options, selection, session)), [])
    try:
        snapshot = _take(options, selection, session)
    except NoSuchMomentError as error:
        if options.table != "events":
            raise
        return Plan(list(events_until(options, selection, session, error)), [])
    try:
        check_streams(snapshot, options.starting, options.ending)
    except BaseException:
        if not options.snapshot:
            snapshot.close()
        raise
    place = locate_snapshot(snapshot, options.path, session)
    found: list[Part]
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
    return Plan(found, [snapshot.lease] if found and snapshot.lease is not None else [])


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
    """Check that all queues of a list exist."""
    named = options.named_queues
    if options.described is None and named:
        # Deleted queues have events.
        names = snapshot.names.values() if options.table == "events" else snapshot.queues
        known = {each.name for each in names if each.kind == "queue" and matches(each.vhost, options.vhost)}
        for queue in named:
            if queue not in known:
                raise NoSuchQueueError(f"{options.path} has no queue {options.description_of(queue)}")
