"""Divides an archive, and what live data directories have besides, into parts that tasks read.

Rows are neither missing nor double, because a snapshot of each data directory is taken first, and then the manifests
are read. What the manifests say was copied is read from the archive alone, everything else from the snapshots. A
message that was copied and deleted in between is in the manifests, since these are newer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.analytics.archive.archive_part import ArchivePart, archive_parts
from leveret.analytics.archive.broker_names import names_of
from leveret.analytics.archive.manifest import BrokerFiles, Manifest
from leveret.analytics.archive.manifest_log import read_manifests, store_ids
from leveret.analytics.archive.sources import Sources
from leveret.analytics.archive_option import AUTO
from leveret.analytics.data_files import open_files
from leveret.analytics.errors import OptionError
from leveret.analytics.options import Options
from leveret.analytics.partitions import (
    EventsPartition,
    MessagesPartition,
    event_partitions,
    group_parts,
    locate_snapshot,
    may_match,
)
from leveret.analytics.query_snapshots import note_snapshot
from leveret.analytics.rows.record_rows import RowLimits
from leveret.analytics.selection import Selection
from leveret.analytics.stream_offsets import EARLIEST, LATEST
from leveret.analytics.streaming.message_stream import parts_between
from leveret.analytics.streaming.next_numbers import numbers_in
from leveret.analytics.streaming.stream_chains import NUMBERS_MAX, chains_of
from leveret.analytics.table_plan import event_queue_ids, vhosts_of
from leveret.storage.readers.reader_file import matches
from leveret.storage.snapshots.lease import TIMEOUT, SnapshotLease
from leveret.storage.snapshots.snapshot import Request, Snapshot, take_snapshot


@dataclass
class LivePart:
    """A part of a live table.

    Attributes:
        partition: The part.
        broker: Name of the broker.
    """

    partition: MessagesPartition | EventsPartition
    broker: str


Part: TypeAlias = ArchivePart | LivePart


class ArchivePlan(NamedTuple):
    """What a query reads.

    Attributes:
        parts: The parts of the table, in order.
        leases: Keep the files of live data directories.
    """

    parts: list[Part]
    leases: list[SnapshotLease]


def check_archive_options(options: Options) -> None:
    """Check that options apply to an archive.

    Raises:
        OptionError: One does not.
    """
    if options.as_of is not None or options.snapshot:
        raise OptionError(
            "asOf and snapshot do not apply to archives, which have all that has come; use since and until"
        )
    if options.pushdown:
        raise OptionError(
            "pushdown does not apply to archives; name what to read: vhost, queue, since, until, firstSeq"
        )
    if options.archive != AUTO:
        raise OptionError("the option archive is for data directories; what an archive has is read from it anyway")
    if (options.starting, options.ending) != (EARLIEST, LATEST):
        raise OptionError(
            "startingOffsets and endingOffsets do not apply to archives; use firstSeq, lastSeq, since and until"
        )


def plan_archive(sources: Sources, options: Options, selection: Selection, session: str = "") -> ArchivePlan:
    """Divide a table of an archive and of live data directories into parts.

    Args:
        sources: What to read.
        options: Options of the data source; their limits are not used.
        selection: The rows to read.
        session: Directory in which snapshots are recorded for the process that renews their leases; empty for none.
    Raises:
        DataDirectoryError: A path is not a data directory, or a newer version wrote it.
        SnapshotError: No snapshot can be taken.
        ArchiveError: The archive cannot be read.
    """
    snapshots: list[Snapshot] = []
    try:
        for path in sources.live:
            snapshots.append(_take(path, options, selection))
            note_snapshot(snapshots[-1], options, session)
        files = ArchiveFiles(sources.archive)
        known = {store: read_manifests(files, store) for store in store_ids(files)}
        there = [file for state in known.values() for file in state.files.values()]
        parts: list[Part] = list(archive_parts(sources.archive, there, options, selection))
        named = {store: state.last.broker for store, state in known.items() if state.last is not None}
        stores = {path: each.store_id.hex() for path, each in zip(sources.live, snapshots, strict=True)}
        names = names_of(named, stores)
        for path, snapshot in zip(sources.live, snapshots, strict=True):
            last = known.get(snapshot.store_id.hex(), BrokerFiles()).last
            found = _messages if options.table == "messages" else _events
            parts += [LivePart(each, names[path]) for each in found(path, snapshot, last, options, selection)]
    except BaseException:
        for snapshot in snapshots:
            snapshot.close()
        raise
    return ArchivePlan(parts, [each.lease for each in snapshots if each.lease is not None])


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
