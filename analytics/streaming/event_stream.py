"""Streams of the event log, which the broker keeps for days, and of the audit log, which only the archiver reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from zlib import crc32

from leveret.analytics.errors import report_data_loss
from leveret.analytics.option_values import LATEST
from leveret.analytics.options import Options
from leveret.analytics.selection import RowLimits
from leveret.analytics.tables.partitions import (
    AuditPartition,
    EventsPartition,
    SnapshotLocation,
    event_partitions,
    locate_snapshot,
)
from leveret.storage.audit_log import DIRECTORY, audit_files, file_name
from leveret.storage.disk.files import DiskFiles
from leveret.storage.event_format import EVENT_BYTES
from leveret.storage.event_log import EventPosition
from leveret.storage.json_records import HEAD, unpack_records
from leveret.storage.snapshots.snapshot import (
    EventFileView,
    Request,
    Snapshot,
    SnapshotMemory,
    read_directory_format,
    take_snapshot,
)


class EventStream:
    """Reads events after an offset, which is a position in the event log."""

    def __init__(self, options: Options) -> None:
        self._options = options
        #: Offset at which the last batch ends; None for an endless stream.
        self._target: dict[str, Any] | None = None
        self._memory = SnapshotMemory()

    def stop_at_latest(self) -> None:
        """Limit the stream to the events that exist now."""
        self._target = self._take().cut.position._asdict()

    def first(self) -> dict[str, Any]:
        """Return the start offset of a new query."""
        if self._options.starting != LATEST:
            return {"file": 0, "offset": 0}
        return self._take().cut.position._asdict()

    def advance(self, start: dict[str, Any], limit: int) -> dict[str, Any]:
        """Return the end offset of the next batch.

        Args:
            start: Start offset of the batch.
            limit: Maximum number of events; 0 for no limit.
        """
        end = self._take()
        target = self._target or end.cut.position._asdict()
        if not limit:
            return max(start, target, key=_place_of)
        left = limit * EVENT_BYTES
        at = start
        for view in end.events:
            if view.file < start["file"]:
                continue
            first = max(EVENT_BYTES, start["offset"] if view.file == start["file"] else 0)
            step = min(left, max(0, view.end - first))
            left -= step
            at = {"file": view.file, "offset": first + step}
            if not left:
                break
        return max(start, min(at, target, key=_place_of), key=_place_of)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[EventsPartition]:
        """Yield the partitions between two offsets.

        Raises:
            AnalyticsError: Event files in between have been deleted, and failOnDataLoss is true.
        """
        if start == end:
            return
        snapshot = self._take()
        oldest = snapshot.events[0].file if snapshot.events else end["file"]
        if oldest > start["file"] > 0:
            gone = (
                f"events from {start['file']} to {oldest} (microseconds since 1970) are gone: the query was stopped "
                "for longer than the broker keeps events"
            )
            report_data_loss(gone, self._options.fail_on_data_loss)
        views = [
            EventFileView(view.path, view.file, end["offset"] if view.file == end["file"] else view.end, view.until)
            for view in snapshot.events
            if start["file"] <= view.file <= end["file"]
        ]
        snapshot.events[:] = views
        place, vhosts = locate_snapshot(snapshot, self._options.path), (self._options.vhost, None)
        for part in event_partitions(snapshot, place, RowLimits(), self._wanted(snapshot), vhosts):
            first = start["offset"] if part.view.file == start["file"] else 0
            if part.view.end > first:
                part.start = max(part.start, first)
                yield part

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: a stream of events holds no snapshot."""

    def stop(self) -> None:
        """Do nothing: a stream of events holds no snapshot."""

    def _take(self) -> Snapshot:
        options = self._options
        request = Request(
            messages=False,
            events=True,
            wanted=options.wants,
            described=options.described,
            link=False,
            memory=self._memory,
        )
        return take_snapshot(options.path, request)

    def _wanted(self, snapshot: Snapshot) -> frozenset[int] | None:
        if self._options.vhost is None and self._options.queue is None:
            return None
        wants = self._options.wants
        found = frozenset(qid for qid, name in snapshot.names.items() if wants(name.vhost, name.name))
        return found if self._options.queue is not None else found | {0}


def _place_of(offset: dict[str, Any]) -> EventPosition:
    return EventPosition(**offset)


class AuditStream:
    """Reads lines after a position: the time in the name of a file, and an offset in it.

    A file that has a successor does not grow any more, and a broker that starts begins another file. So what is before
    a position is never written again, also if the machine's end has taken lines that were read.

    Args:
        data_dir: Path of the data directory.
        vhost: Virtual hosts whose lines are wanted, as the option `vhost` names them; None for all lines.
        fail_on_data_loss: Whether it is an error that lines were removed before they could be read.
    Raises:
        DataDirectoryError: The path is not a data directory, or a newer version wrote it.
    """

    def __init__(self, data_dir: str, vhost: str | None, fail_on_data_loss: bool) -> None:
        self._files = DiskFiles()
        self._directory = f"{data_dir}/{DIRECTORY}"
        self._vhost = vhost
        self._fail_on_data_loss = fail_on_data_loss
        self._place = SnapshotLocation(data_dir, "", 0, read_directory_format(self._files, data_dir).store_id)

    def advance(self, start: dict[str, Any], limit: int) -> dict[str, Any]:
        """Return the position after some lines that follow another one.

        Args:
            limit: Maximum number of lines.
        Raises:
            AnalyticsError: Lines in between have been removed, and that is an error.
        """
        known = audit_files(self._files, self._directory)
        if known and known[0] > start["file"] > 0:
            gone = (
                f"lines of the audit log since {start['file']} (microseconds since 1970) may be gone: it was read last "
                "longer ago than audit.retention and audit.max_bytes keep them"
            )
            report_data_loss(gone, self._fail_on_data_loss)
        salt, left, at = crc32(self._place.store_id), limit, start
        for file in known:
            if file < start["file"]:
                continue
            offset = start["offset"] if file == start["file"] else 0
            octets = self._files.read_all(self._path(file)) or b""
            for found in unpack_records(octets[offset:], salt):
                offset += HEAD.size + len(found)
                left -= 1
                if not left:
                    return {"file": file, "offset": offset}
            at = {"file": file, "offset": offset}
        return at

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[AuditPartition]:
        """Yield what is between two positions."""
        for file in audit_files(self._files, self._directory) if start != end else ():
            if start["file"] <= file <= end["file"]:
                first = start["offset"] if file == start["file"] else 0
                last = end["offset"] if file == end["file"] else None
                limits, vhosts = RowLimits(), (self._vhost, None)
                yield AuditPartition(self._place, file, self._path(file), limits, vhosts, first, last)

    def _path(self, file: int) -> str:
        return f"{self._directory}/{file_name(file)}"
