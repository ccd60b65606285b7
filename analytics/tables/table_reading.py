"""Reads the parts of a table in tasks; independent of a Spark session."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final
from zlib import crc32

import numpy as np
import pyarrow as pa

from leveret.analytics.archive.manifests import ArchivePart
from leveret.analytics.arrow_schema import with_broker
from leveret.analytics.bodies.body_format import BodyFormat
from leveret.analytics.columns import BROKER, TIME_COLUMNS
from leveret.analytics.data_files import open_files
from leveret.analytics.errors import AnalyticsError, DamagedRecordError
from leveret.analytics.rows.record_rows import RecordRows, RowDamage, select_rows
from leveret.analytics.tables.audit_rows import audit_rows
from leveret.analytics.tables.event_batches import DETAILS, EventRows, event_batch, places_of_details, select_events
from leveret.analytics.tables.message_batches import message_batch, queue_row, rows_batch, segment_rows
from leveret.analytics.tables.older_events import read_older
from leveret.analytics.tables.partitions import (
    AuditPartition,
    EventsPartition,
    LivePart,
    MessagesPartition,
    OlderEventsPartition,
    Part,
    Partition,
    QueuesPartition,
    SegmentPart,
    SnapshotLocation,
)
from leveret.storage.event_format import DETAILS_MAX, EVENT_BYTES, details_beside, read_details
from leveret.storage.snapshots.lease import SnapshotLease
from leveret.storage.snapshots.segments import SegmentView, read_open
from leveret.storage.snapshots.snapshot import EventFileView

_LOG: Final = logging.getLogger(__name__)
#: Of so few messages at most the beginning of a file is read, instead of all of it; and how much, in bytes.
_FIRST_ROWS: Final = 1000
_FIRST_BYTES: Final = 256 << 10
#: Number of messages whose columns are made at once: so many that their bytes stay in the caches of the processor.
_ROWS_AT_ONCE: Final = 16 << 10
#: File in a snapshot's or session's directory that lists damage, one JSON object per line.
DAMAGE_FILE: Final = "DAMAGE"


class PartitionReader:
    """Reads partitions of a snapshot.

    Args:
        limit: Of how many messages at most columns are made; None for all. There may be more rows of other tables.
    """

    def __init__(
        self,
        place: SnapshotLocation,
        table: str,
        columns: Sequence[str],
        fail_fast: bool,
        bodies: BodyFormat | None = None,
        limit: int | None = None,
    ) -> None:
        self._place = place
        self._table = table
        self._columns = columns
        self._fail_fast = fail_fast
        self._limit = limit
        self._lease = SnapshotLease(place.lease) if place.lease else None
        self._files = open_files(place.location)[0]
        self._bodies = None if bodies is None else bodies.reader()

    def messages(self, partition: MessagesPartition) -> Iterator[Any]:
        """Yield record batches of messages, one or more per segment.

        Raises:
            DamagedRecordError: A record is damaged, and `fail_fast` is set.
            AnalyticsError: The snapshot is gone.
        """
        for part in partition.parts:
            if self._limit == 0:
                return
            # No variable here has the file: it is freed before the next one is read.
            yield from self._message_batches(part)

    def rows(self, part: SegmentPart) -> RecordRows:
        """Return the selected messages of a segment.

        Raises:
            DamagedRecordError, AnalyticsError: As messages() does.
        """
        return self._selected(self._read(part.view), part)

    def _selected(self, octets: bytes, part: SegmentPart) -> RecordRows:
        rows = select_rows(octets, part.view, self._place.cut, part.limits, part.view.live)
        self._record_damage(rows.damage, self._original_path(part.view))
        return rows

    def _rows_up_to(self, part: SegmentPart, most: int) -> RecordRows:
        """Return selected messages of a segment, `most` at most; for few of them only its beginning is read."""
        rows = self._rows_at_the_beginning(part, most) if most <= _FIRST_ROWS else None
        rows = rows or self.rows(part)
        rows.at = rows.at[:most]
        return rows

    def _rows_at_the_beginning(self, part: SegmentPart, wanted: int) -> RecordRows | None:
        """Return selected messages from the beginning of a segment; None if it has fewer than wanted, or damage."""
        octets = self._open(part.view.path, part.view.moved_path, 0, _FIRST_BYTES)
        if len(octets) < _FIRST_BYTES:
            return self._selected(octets, part)
        # As of a segment that has no end yet, each record is checked.
        view = replace(part.view, sealed=False)
        rows = select_rows(octets, view, self._place.cut, part.limits, view.live)
        return rows if len(rows.at) >= wanted and not rows.damage.records else None

    def _message_batches(self, part: SegmentPart) -> Iterator[Any]:
        """Yield the selected messages of a segment, up to the limit."""
        if self._limit is None:
            rows = self.rows(part)
        else:
            rows = self._rows_up_to(part, self._limit)
            self._limit -= len(rows.at)
        for piece in rows.pieces(_ROWS_AT_ONCE):
            yield message_batch(piece, part.view, self._columns, part.label, part.delivered, self._bodies)

    def events(self, partition: EventsPartition) -> Iterator[Any]:
        """Yield record batches of events."""
        view, start = partition.view, max(partition.start, EVENT_BYTES)
        # What says more about the first event is before it.
        before = EVENT_BYTES if start > EVENT_BYTES else 0
        octets = self._open(view.path, "", start - before, max(0, view.end - start) + before)
        rows = select_events(
            octets, crc32(self._place.store_id), partition.wanted, partition.limits, is_continued=before > 0
        )
        damage = rows.damage._replace(at=rows.damage.at + start)
        path = f"{self._place.location}/events/{os.path.basename(view.path)}"
        self._record_damage(damage, path, f"{path}:{start}")
        details = self._details(rows, view) if len(rows.events) and self._wants_details(partition) else {}
        rows = _of_messages(_of_vhosts(rows, partition, details), partition)
        if len(rows.events):
            yield event_batch(rows, self._columns, partition.names, details)

    def _wants_details(self, partition: EventsPartition) -> bool:
        return partition.wanted is not None or not DETAILS.isdisjoint(self._columns)

    def _details(self, rows: EventRows, view: EventFileView) -> dict[int, dict[str, str]]:
        """Return the details of events by their places plus 1, those that can be read."""
        places = np.unique(places_of_details(rows.events))
        places = places[places > 0]
        if not len(places):
            return {}
        first, salt = int(places[0]), crc32(self._place.store_id)
        path = details_beside(view.path, view.file)
        try:
            octets = self._read_part(path, first - 1, int(places[-1]) - first + DETAILS_MAX)
        except FileNotFoundError:
            return {}
        return {int(place): read_details(octets, int(place) - first, salt) for place in places}

    def queues(self, partition: QueuesPartition) -> Iterator[Any]:
        """Yield a record batch of segments or queues."""
        rows: list[dict[str, Any]] = []
        for queue in partition.queues:
            found: list[dict[str, Any]] = []
            for view, row, depth in segment_rows(queue, self._place.cut, self._read, self._size):
                found.append(row)
                self._record_damage(depth.damage, self._original_path(view))
            rows += found if self._table == "segments" else [queue_row(queue, self._place.cut, found)]
        if rows:
            yield rows_batch(self._table, self._columns, rows)

    def audit(self, partition: AuditPartition) -> Iterator[Any]:
        """Yield a record batch of the audit log; a file that has become too old meanwhile has no rows."""
        octets = self._files.read_all(partition.path) or b""
        rows = audit_rows(octets[partition.start : partition.end], crc32(self._place.store_id), partition)
        if rows:
            yield rows_batch(self._table, self._columns, rows)

    def _read(self, view: SegmentView) -> bytes:
        return self._open(view.path, view.moved_path)

    def _size(self, view: SegmentView) -> int:
        try:
            return self._files.size(view.path)
        except FileNotFoundError:
            return view.data_len

    def _original_path(self, view: SegmentView) -> str:
        """Return the broker's path of a segment; links are temporary, and their names are reused."""
        directory = f"{self._place.location}/q/{view.qid:08x}" + (f"/p{view.priority:03d}" if view.priority else "")
        return f"{directory}/{view.file_name}"

    def _open(self, path: str, moved_path: str, start: int = 0, size: int | None = None) -> bytes:
        if self._lease is not None:
            self._lease.renew()
        try:
            return read_open(path, moved_path, partial(self._read_part, start=start, size=size))
        except FileNotFoundError as error:
            raise AnalyticsError(
                f"{path} is gone: the snapshot was removed because it was unused for too long or the disk was nearly "
                "full, or it was taken without links while a broker wrote to the directory; run the query again"
            ) from error

    def _read_part(self, path: str, start: int, size: int | None) -> bytes:
        if size is not None:
            return self._files.read_part(path, start, size)
        octets = self._files.read_all(path)
        if octets is None:
            raise FileNotFoundError(path)
        return octets

    def _record_damage(self, damage: RowDamage, path: str, part: str = "") -> None:
        """Log damage and record it in the damage file.

        Args:
            part: Name of the part that was read; empty for the whole file.
        """
        count, at = damage
        if not count:
            return
        if self._fail_fast:
            raise DamagedRecordError(
                f"{path}: {count} records are damaged, the first one at byte {at}; mode PERMISSIVE skips them"
            )
        _LOG.warning("%s: %d records are damaged and were skipped, the first one at byte %d", path, count, at)
        line = json.dumps({"path": part or path, "damaged": count}) + "\n"
        try:
            with open(f"{self._place.damage_dir}/{DAMAGE_FILE}", "a", encoding="utf-8") as file:
                file.write(line)
        except OSError:
            # The damage is in the log.
            pass


def _of_vhosts(rows: EventRows, partition: EventsPartition, details: Mapping[int, Mapping[str, str]]) -> EventRows:
    """Leave out events without a queue that are of other virtual hosts than those that are selected."""
    events = rows.events
    if partition.wanted is None or not (events["qid"] == 0).any():
        return rows
    keep = np.array(
        [
            qid != 0 or partition.wants_vhost(details.get(int(place), {}).get("vhost"))
            for qid, place in zip(events["qid"].tolist(), places_of_details(events).tolist(), strict=True)
        ]
    )
    return rows.where(keep)


def _of_messages(rows: EventRows, partition: EventsPartition) -> EventRows:
    """Leave out events of stores that have no messages: remembered values, and places of consumers in a stream."""
    qids = np.unique(rows.events["qid"]).tolist()
    others = [qid for qid in qids if qid in partition.names and not partition.names[qid].has_messages]
    if not others:
        return rows
    return rows.where(~np.isin(rows.events["qid"], others))


def read_partition(
    partition: Partition,
    table: str,
    columns: Sequence[str],
    fail_fast: bool,
    bodies: BodyFormat | None = None,
    limit: int | None = None,
) -> Iterator[Any]:
    """Return the record batches of any kind of partition; see PartitionReader."""
    reader = PartitionReader(partition.place, table, columns, fail_fast, bodies, limit)
    readers: dict[type, Callable[[Any], Iterator[Any]]] = {
        MessagesPartition: reader.messages,
        EventsPartition: reader.events,
        OlderEventsPartition: lambda older: read_older(older.part, older.shared, columns),
        QueuesPartition: reader.queues,
        AuditPartition: reader.audit,
    }
    return readers[type(partition)](partition)


def read_part(
    part: Part,
    table: str,
    columns: Sequence[str],
    fail_fast: bool,
    bodies: BodyFormat | None = None,
    limit: int | None = None,
    choose: Callable[[list[int]], list[int]] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of a part of any table.

    Args:
        part: The part.
        table: Name of the table.
        columns: Names of the columns, in order.
        fail_fast: Raise an error at a damaged record instead of skipping it.
        bodies: How bodies are read; None if no column needs it.
        limit: How many rows are needed; None for all. There may be more.
        choose: Chooses some of the row groups of an archive's file; None for all.
    Raises:
        ArchiveError: A file of the archive cannot be read.
        DamagedRecordError: A record of a data directory is damaged, and `fail_fast` is set.
        AnalyticsError: The snapshot of a data directory is gone.
    """
    if isinstance(part, LivePart):
        # A table without columns would have no rows.
        live = [name for name in columns if name != BROKER] or [TIME_COLUMNS[table]]
        for batch in read_partition(part.partition, table, live, fail_fast, bodies, limit):
            yield with_broker(batch, part.broker, columns)
    elif isinstance(part, ArchivePart):
        # Data directories are read without what archives need.
        from leveret.analytics.archive.file_reading import read_archived

        yield from read_archived(part, table, columns, bodies, choose)
    else:
        yield from read_partition(part, table, columns, fail_fast, bodies, limit)


def damage_of(lease_path: str) -> int:
    """Return the number of damaged records of a snapshot; repeated reads of the same part count once."""
    try:
        with open(f"{lease_path}/{DAMAGE_FILE}", encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
    except OSError:
        return 0
    worst: dict[str, int] = {}
    for line in lines:
        worst[line["path"]] = max(worst.get(line["path"], 0), line["damaged"])
    return sum(worst.values())
