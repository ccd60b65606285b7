"""Divides an archive, and what live data directories have besides, into parts that tasks read.

Rows are neither missing nor double, because a snapshot of each data directory is taken first, and then the manifests
are read. What the manifests say was copied is read from the archive alone, everything else from the snapshots. A
message that was copied and deleted in between is in the manifests, since these are newer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.analytics.archive.layout import Sources
from leveret.analytics.archive.manifests import (
    BrokerFiles,
    Manifest,
    archive_parts,
    names_of,
    read_manifests,
    store_ids,
)
from leveret.analytics.data_files import LocalFiles, open_files
from leveret.analytics.options import Options
from leveret.analytics.selection import RowLimits, Selection
from leveret.analytics.tables.audit_rows import START, audit_beside_archive
from leveret.analytics.tables.chains import NUMBERS_MAX, chains_of, numbers_in, parts_between
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
    vhosts_of,
)
from leveret.analytics.tables.query_snapshots import note_snapshot
from leveret.storage.readers.reader_file import matches
from leveret.storage.snapshots.lease import TIMEOUT
from leveret.storage.snapshots.snapshot import Request, Snapshot, read_directory_format, take_snapshot


def plan_archive(sources: Sources, options: Options, selection: Selection, session: str = "") -> Plan:
    """Divide a table of an archive and of live data directories into parts.

    Args:
        options: Options of the data source; their limits are not used.
        session: Directory in which snapshots are recorded for the process that renews their leases; empty for none.
    Raises:
        DataDirectoryError: A path is not a data directory, or a newer version wrote it.
        SnapshotError: No snapshot can be taken.
        ArchiveError: The archive cannot be read.
    """
    snapshots: list[Snapshot] = []
    try:
        for path in sources.live if options.table != "audit" else ():
            snapshots.append(_take(path, options, selection))
            note_snapshot(snapshots[-1], options, session)
        files = ArchiveFiles(sources.archive)
        known = {store: read_manifests(files, store) for store in store_ids(files)}
        there = [file for state in known.values() for file in state.files.values()]
        parts: list[Part] = list(archive_parts(sources.archive, there, options, selection))
        named = {store: state.last.broker for store, state in known.items() if state.last is not None}
        stores = {path: _store_id(path) for path in sources.live}
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


def _take(path: str, options: Options, selection: Selection) -> Snapshot:
    is_messages = options.table == "messages"
    files, path = open_files(path)
    return take_snapshot(
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
        files,
    )


def _store_id(path: str) -> str:
    files, path = open_files(path)
    return read_directory_format(files or LocalFiles(), path).store_id.hex()


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
