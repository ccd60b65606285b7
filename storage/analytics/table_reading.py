"""Reading a partition: what a task does, without Spark."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final
from zlib import crc32

from leveret.storage.analytics.data_files import LocalFiles, open_files
from leveret.storage.analytics.errors import AnalyticsError
from leveret.storage.analytics.event_batches import event_batch, select_events
from leveret.storage.analytics.message_batches import message_batch
from leveret.storage.analytics.partitions import EventsPartition, MessagesPartition, Place, QueuesPartition
from leveret.storage.analytics.queue_batches import queue_row, rows_batch, segment_rows
from leveret.storage.analytics.record_rows import RowDamage, select_rows
from leveret.storage.event_format import EVENT_BYTES
from leveret.storage.snapshots.lease import SnapshotLease
from leveret.storage.snapshots.reader import DamagedRecordError
from leveret.storage.snapshots.segments import SegmentView, read_open

_LOG: Final = logging.getLogger(__name__)
#: In a snapshot's directory, or in its session's: what was found damaged, one JSON object a line.
DAMAGE_FILE: Final = "DAMAGE"


class TableReading:
    """Reads the partitions of one snapshot.

    Args:
        place: Where it is.
        table: Which table.
        columns: Names of the columns, in order.
        fail_fast: Raise at a damaged record.
    """

    def __init__(self, place: Place, table: str, columns: Sequence[str], fail_fast: bool) -> None:
        self._place = place
        self._table = table
        self._columns = columns
        self._fail_fast = fail_fast
        self._lease = SnapshotLease(place.lease) if place.lease else None
        self._files = open_files(place.location)[0] or LocalFiles()

    def messages(self, partition: MessagesPartition) -> Iterator[Any]:
        """Record batches of messages, one a segment.

        Raises:
            DamagedRecordError: One is damaged, and that is not to be skipped.
            AnalyticsError: The snapshot is gone.
        """
        for view, label, delivered, limits, dead_too in partition.parts:
            live = None if dead_too else view.live
            rows = select_rows(self._read(view), view, self._place.cut, limits, live)
            self._note_damage(rows.damage, self._origin(view))
            if len(rows.at):
                yield message_batch(rows, self._columns, label, delivered)

    def events(self, partition: EventsPartition) -> Iterator[Any]:
        """Record batches of events."""
        view, start = partition.view, max(partition.start, EVENT_BYTES)
        octets = self._open(view.path, "", start, max(0, view.end - start))
        rows = select_events(octets, crc32(self._place.store_id), partition.wanted, partition.limits)
        damage = rows.damage._replace(at=rows.damage.at + start)
        path = f"{self._place.location}/events/{os.path.basename(view.path)}"
        self._note_damage(damage, path, f"{path}:{start}")
        if len(rows.events):
            yield event_batch(rows.events, self._columns, partition.names)

    def queues(self, partition: QueuesPartition) -> Iterator[Any]:
        """A record batch of segments or queues."""
        rows: list[dict[str, Any]] = []
        for queue in partition.queues:
            found: list[dict[str, Any]] = []
            for view, row, depth in segment_rows(queue, self._place.cut, self._read, self._size):
                found.append(row)
                self._note_damage(depth.damage, self._origin(view))
            rows += found if self._table == "segments" else [queue_row(queue, self._place.cut, found)]
        if rows:
            yield rows_batch(self._table, self._columns, rows)

    def _read(self, view: SegmentView) -> bytes:
        return self._open(view.path, view.moved_path)

    def _size(self, view: SegmentView) -> int:
        try:
            return self._files.size(view.path)
        except FileNotFoundError:
            return view.data_len

    def _origin(self, view: SegmentView) -> str:
        """Where the broker has a segment: links go away, and others stand behind the same name of a link."""
        name = os.path.basename(view.path)
        directory = f"{self._place.location}/q/{view.qid:08x}" + (f"/p{view.priority:03d}" if view.priority else "")
        return f"{directory}/{name.removeprefix(f'p{view.priority:03d}-')}"

    def _open(self, path: str, moved_path: str, start: int = 0, size: int | None = None) -> bytes:
        if self._lease is not None:
            self._lease.renew()
        try:
            return read_open(path, moved_path, partial(self._read_part, start=start, size=size))
        except FileNotFoundError as error:
            raise AnalyticsError(
                f"{path} is gone: the snapshot was given up, because nobody had read it for long or the disk was "
                "short, or it was taken without links from a directory that a broker writes to; run the query again"
            ) from error

    def _read_part(self, path: str, start: int, size: int | None) -> bytes:
        if size is not None:
            return self._files.read_part(path, start, size)
        octets = self._files.read_all(path)
        if octets is None:
            raise FileNotFoundError(path)
        return octets

    def _note_damage(self, damage: RowDamage, path: str, part: str = "") -> None:
        """Say what is damaged.

        Args:
            damage: What was found.
            path: Of the file.
            part: What to call the part of it that was looked at, if that was not all.
        """
        count, at = damage
        if not count:
            return
        if self._fail_fast:
            raise DamagedRecordError(
                f"{path}: {count} records are damaged, the first one at byte {at}; mode PERMISSIVE passes over them"
            )
        _LOG.warning("%s: %d records are damaged and were skipped, the first one at byte %d", path, count, at)
        line = json.dumps({"path": part or path, "damaged": count}) + "\n"
        try:
            with open(f"{self._place.notes}/{DAMAGE_FILE}", "a", encoding="utf-8") as file:
                file.write(line)
        except OSError:
            # It has been said in the log.
            pass


def read_partition(partition: Any, table: str, columns: Sequence[str], fail_fast: bool) -> Iterator[Any]:
    """Record batches of any partition."""
    reading = TableReading(partition.place, table, columns, fail_fast)
    readers: dict[type, Callable[[Any], Iterator[Any]]] = {
        MessagesPartition: reading.messages,
        EventsPartition: reading.events,
        QueuesPartition: reading.queues,
    }
    return readers[type(partition)](partition)


def damage_of(lease_path: str) -> int:
    """How many records of a snapshot were found damaged; each place counts once, however often it was read."""
    try:
        with open(f"{lease_path}/{DAMAGE_FILE}", encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
    except OSError:
        return 0
    worst: dict[str, int] = {}
    for line in lines:
        worst[line["path"]] = max(worst.get(line["path"], 0), line["damaged"])
    return sum(worst.values())
