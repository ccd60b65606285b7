"""Takes the snapshots of a query and divides its table into parts; the same for Spark and for Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from leveret.analytics.archive.layout import Sources
from leveret.analytics.archive.manifests import (
    BrokerFiles,
    Manifest,
    archive_parts,
    names_of,
    read_manifests,
    store_ids,
)
from leveret.analytics.data_files import open_files
from leveret.analytics.options import Options
from leveret.analytics.selection import RowLimits, Selection
from leveret.analytics.tables.audit_rows import START, audit_beside_archive, audit_partitions
from leveret.analytics.tables.chains import NUMBERS_MAX, chains_of, numbers_in, parts_between
from leveret.analytics.tables.older_events import events_until, older_events
from leveret.analytics.tables.partitions import (
    AuditPartition,
    EventsPartition,
    LivePart,
    MessagesPartition,
    Part,
    Plan,
    event_partitions,
    event_queue_ids,
    group_parts,
    locate_snapshot,
    may_match,
    message_partitions,
    queue_partitions,
    vhosts_of,
)
from leveret.analytics.tables.query_snapshots import (
    check_streams,
    load_shared_snapshot,
    note_snapshot,
    snapshot_of,
    take_query_snapshot,
)
from leveret.storage.readers.reader_file import matches
from leveret.storage.snapshots.lease import TIMEOUT
from leveret.storage.snapshots.snapshot import (
    NoSuchMomentError,
    NoSuchQueueError,
    Request,
    Snapshot,
    read_directory_format,
)


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
            _plan_archive() do.
    """
    if sources is None:
        return plan_table(options, selection, session)
    return _plan_archive(sources, options.for_archive(), selection, session)


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


def _plan_archive(sources: Sources, options: Options, selection: Selection, session: str = "") -> Plan:
    """Divide a table of an archive, and what live data directories have besides, into parts that tasks read.

    Rows are neither missing nor double, because a snapshot of each data directory is taken first, and then the
    manifests are read. What the manifests say was copied is read from the archive alone, everything else from the
    snapshots. A message that was copied and deleted in between is in the manifests, since these are newer.

    Args:
        options: Options of the data source; their limits are not used.
        session: Directory in which snapshots are recorded for the process that renews their leases; empty for none.
    Raises:
        DataDirectoryError: A path is not a data directory, or a newer version wrote it.
        SnapshotError: No snapshot can be taken.
        ArchiveError: The archive cannot be read.
    """
    # Data directories are read without what archives need.
    from leveret.analytics.archive.archive_files import ArchiveFiles

    snapshots: list[Snapshot] = []
    try:
        for path in sources.live if options.table != "audit" else ():
            snapshots.append(_take_beside_archive(path, options, selection))
            note_snapshot(snapshots[-1], options, session)
        files = ArchiveFiles(sources.archive)
        known = {store: read_manifests(files, store) for store in store_ids(files)}
        there = [file for state in known.values() for file in state.files.values()]
        parts: list[Part] = list(archive_parts(sources.archive, there, options, selection))
        named = {store: state.last.broker for store, state in known.items() if state.last is not None}
        stores = {path: read_directory_format(*open_files(path)).store_id.hex() for path in sources.live}
        names = names_of(named, stores)
        if options.table == "audit":
            # What has been read of the log is before the position in the manifest, whenever the rest is read.
            for path, store in stores.items():
                last = known.get(store, BrokerFiles()).last
                parts += [LivePart(each, names[path]) for each in _audit(path, last, options, selection)]
            return Plan(parts, [])
        for path, snapshot in zip(sources.live, snapshots, strict=True):
            last = known.get(snapshot.store_id.hex(), BrokerFiles()).last
            found = _messages if options.table == "messages" else _events
            parts += [LivePart(each, names[path]) for each in found(path, snapshot, last, options, selection)]
    except BaseException:
        for snapshot in snapshots:
            snapshot.close()
        raise
    return Plan(parts, [each.lease for each in snapshots if each.lease is not None])


def _take_beside_archive(path: str, options: Options, selection: Selection) -> Snapshot:
    is_messages = options.table == "messages"
    return snapshot_of(
        path,
        Request(
            messages=is_messages,
            events=not is_messages,
            # As the archiver copies them.
            dead_too=True,
            wanted=lambda vhost, queue: options.wants(vhost, queue) and selection.wants(vhost, queue),
            purpose=f"analytics, archived table {options.table}",
            timeout=options.lease_seconds or TIMEOUT,
            kind="queue" if is_messages else "",
        ),
    )


def _audit(path: str, last: Manifest | None, options: Options, selection: Selection) -> Iterator[AuditPartition]:
    """Yield the lines of the audit log that have not been copied."""
    position = last.position if last is not None else {}
    copied = position.get("taken", {}).get("vhost")
    return audit_beside_archive(replace(options, path=path), selection, position.get("audit", START), copied)


def _messages(
    path: str, snapshot: Snapshot, last: Manifest | None, options: Options, selection: Selection
) -> Iterator[MessagesPartition]:
    """Yield the messages of a data directory that have not been copied."""
    copied: Mapping[str, int] = numbers_in(last.position["messages"]) if last is not None else {}
    limits = selection.limits
    parts = []
    for chain in chains_of(snapshot):
        first = max(chain.next_in(copied), limits.first_seq)
        for part in parts_between(chain, first, min(limits.last_seq, NUMBERS_MAX - 1) + 1):
            within = RowLimits(part.limits.first_seq, part.limits.last_seq, limits.first_time, limits.last_time)
            if may_match(part.view, within):
                parts.append(part._replace(limits=within))
    place = locate_snapshot(snapshot, path)
    for group in group_parts(parts, options.segments_per_partition):
        yield MessagesPartition(place, group)


def _events(
    path: str, snapshot: Snapshot, last: Manifest | None, options: Options, selection: Selection
) -> Iterator[EventsPartition]:
    """Yield the events of a data directory that have not been copied."""
    place, limits = locate_snapshot(snapshot, path), selection.limits
    position: dict[str, Any] = last.position["events"] if last is not None else {"file": 0, "offset": 0}
    taken = last.position.get("taken", {}) if last is not None else {}
    wanted = event_queue_ids(snapshot, options, selection)
    for part in event_partitions(snapshot, place, limits, wanted, vhosts_of(options, selection)):
        if _is_before(part, position, part.view.end):
            continue
        if part.view.file == position["file"]:
            part.start = max(part.start, position["offset"])
        yield part
    if taken.get("vhost") is None and taken.get("queue") is None:
        return
    # Before that position, the archive has the events of the queues that it takes.
    others = frozenset(
        qid
        for qid, name in snapshot.names.items()
        if (wanted is None or qid in wanted)
        and not (matches(name.vhost, taken["vhost"]) and matches(name.name, taken["queue"]))
    )
    for part in event_partitions(snapshot, place, limits, others):
        if _is_before(part, position, part.start + 1):
            end = position["offset"] if part.view.file == position["file"] else part.view.end
            part.view = replace(part.view, end=min(part.view.end, end))
            yield part


def _is_before(part: EventsPartition, position: Mapping[str, int], offset: int) -> bool:
    """Return whether an offset in the file of a part is at a position or before it."""
    return (part.view.file, offset) <= (position["file"], position["offset"])
