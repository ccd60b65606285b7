"""What a streaming query makes the broker keep: what its reader has not read, and the segments of its last batch."""

from __future__ import annotations

import fcntl
import json
import os
import time
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

from leveret.analytics.errors import AnalyticsError, report_data_loss
from leveret.analytics.options import Options
from leveret.analytics.selection import RowLimits
from leveret.analytics.tables.chains import numbers_in
from leveret.analytics.tables.partitions import Label, SegmentPart, SnapshotLocation
from leveret.storage.disk.files import DiskFiles
from leveret.storage.readers.reader_file import (
    READERS,
    ReaderFile,
    ReaderFileError,
    lock_path,
    read_reader,
    write_reader,
)
from leveret.storage.snapshots.lease import LEASE_FILE, LINKS
from leveret.storage.snapshots.segments import SegmentView
from leveret.storage.snapshots.snapshot import FileState, file_state

#: Microseconds after which the file is written again although nothing has been read.
_HEARTBEAT: Final = 5_000_000
#: Seconds that a query waits for another one of its reader: that may be the one which it follows, and which is ending.
_PATIENCE = 10.0


class NamedReader:
    """Keeps the file of a query's reader.

    Args:
        options: Options of the query; without a name nothing is done.
        locks: Whether other queries of its name are refused.
    """

    def __init__(self, options: Options, path: str, locks: bool) -> None:
        self._options = options
        self._locks = locks
        self._path = path
        self._name = options.reader
        #: What the file said when it was last written or read, in which state it was then, and when it was written in
        #: microseconds since 1970.
        self._known: tuple[dict[str, Any], FileState | None, int] = {}, None, 0
        #: Locked by the one query that the reader has, until its query or its process ends, or this object goes.
        self._lock: int | None = None

    @property
    def mark(self) -> dict[str, Any]:
        """What offsets say about the reader."""
        return {"reader": self._name} if self._name else {}

    def begin(self, following: Mapping[str, int]) -> None:
        """Make the reader of a new query, or set it back to where the query starts.

        Args:
            following: Number of the first message that the query reads, by chain.
        Raises:
            AnalyticsError: Its file is damaged or cannot be written, or another query has the reader.
        """
        if self._name:
            self._claim()
            self._write(self._find(), following)

    def note_passed(self, start: Mapping[str, Any]) -> None:
        """Tell the broker that everything before an offset has been read and stored.

        Raises:
            AnalyticsError: The file is damaged or cannot be written, or another query has the reader; or the reader was
                dropped, and failOnDataLoss is true.
        """
        if not self._name:
            return
        self._claim()
        numbers = numbers_in(start)
        state, now = self._state(), time.time_ns() // 1000
        said, found_as, written = self._known
        is_recent = state is not None and state == found_as and 0 <= now - written < _HEARTBEAT
        if is_recent and said == numbers.to_json():
            return
        found = self._find()
        if found is None and start.get("reader") == self._name:
            self._report_dropped()
        seen = self._write(found, numbers)
        self._known = numbers.to_json(), self._state(), seen

    def _claim(self) -> None:
        """Lock the reader for this query: two would set each other back, and neither would get all messages."""
        if self._lock is not None or not self._locks:
            return
        where = lock_path(self._path, self._name)
        deadline = time.monotonic() + _PATIENCE
        try:
            os.makedirs(os.path.dirname(where), 0o750, exist_ok=True)
            self._lock = os.open(where, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o640)
        except OSError as error:
            raise AnalyticsError(f"a named reader needs to write {where}: {error.strerror or error}") from error
        while not _lock(self._lock):
            if time.monotonic() >= deadline:
                self.release()
                raise AnalyticsError(
                    f"another query has the reader '{self._name}' of {self._path}: stop it, or take another name"
                )
            time.sleep(0.1)

    def release(self) -> None:
        """Let another query have the reader."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    __del__ = release

    def _find(self) -> ReaderFile | None:
        try:
            return read_reader(DiskFiles(), self._path, self._name)
        except ReaderFileError as error:
            raise AnalyticsError(str(error)) from error

    def _state(self) -> FileState | None:
        return file_state(f"{self._path}/{READERS}/{self._name}")

    def _write(self, before: ReaderFile | None, following: Mapping[str, int]) -> int:
        """Write what has been read, if the file does not say it, or not recently; return when it was written."""
        numbers = {key: number for key, number in following.items() if not key.endswith("/spill")}
        options, now = self._options, time.time_ns() // 1000
        created, seen = (before.created, before.seen) if before is not None else (now, now)
        reader = ReaderFile(self._name, options.vhost, options.queue, created, seen, numbers)
        if reader == before and 0 <= now - seen < _HEARTBEAT:
            return seen
        try:
            write_reader(DiskFiles(), self._path, replace(reader, seen=now))
        except OSError as error:
            where = f"{self._path}/{READERS}/{self._name}"
            raise AnalyticsError(f"a named reader needs to write {where}: {error.strerror or error}") from error
        return now

    def _report_dropped(self) -> None:
        text = (
            f"the reader '{self._name}' was dropped, so the broker has not kept what the query has not read: somebody "
            "has deleted it, or the query was stopped for longer than storage.reader_max_age"
        )
        report_data_loss(text, self._options.fail_on_data_loss, "make it again and go on with what is there")


def _lock(handle: int) -> bool:
    """Lock a file; return whether nobody else has locked it."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


_PARTS_FILE: Final = "PARTS"


def save_parts(directory: str, cut: int, parts: Sequence[SegmentPart]) -> None:
    """Save the segments of a batch in the snapshot's directory, and remove the links to all others.

    Args:
        cut: Time at which the snapshot ends, in microseconds since 1970.
    """
    kept = {part.view.path for part in parts}
    fields = {"cut": cut, "parts": [_to_json(part) for part in parts]}
    draft = f"{directory}/{_PARTS_FILE}.tmp"
    with open(draft, "w", encoding="utf-8") as file:
        json.dump(fields, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, f"{directory}/{_PARTS_FILE}")
    for name in os.listdir(directory):
        path = f"{directory}/{name}"
        if name.startswith(LINKS) and path not in kept:
            os.unlink(path)


def load_parts(directory: str, location: str, store_id: bytes) -> tuple[SnapshotLocation, list[SegmentPart]] | None:
    """Load the segments of a batch; return None if the snapshot is gone."""
    try:
        with open(f"{directory}/{_PARTS_FILE}", encoding="utf-8") as file:
            fields = json.load(file)
    except OSError:
        return None
    return SnapshotLocation(location, directory, fields["cut"], store_id, directory), [
        _from_json(each) for each in fields["parts"]
    ]


def set_lease_timeout(directory: str, timeout: float) -> None:
    """Set how many seconds a snapshot is kept without a heartbeat."""
    path = f"{directory}/{LEASE_FILE}"
    with open(path, encoding="utf-8") as file:
        fields = json.load(file)
    if fields.get("timeout") != timeout:
        with open(f"{path}.tmp", "w", encoding="utf-8") as file:
            json.dump(fields | {"timeout": timeout}, file)
        os.replace(f"{path}.tmp", path)


def _to_json(part: SegmentPart) -> dict[str, Any]:
    view = asdict(replace(part.view, live=array("Q"))) | {"live": list(part.view.live)}
    return {
        "view": view,
        "label": list(part.label),
        "delivered": list(part.delivered),
        "limits": list(part.limits),
    }


def _from_json(fields: dict[str, Any]) -> SegmentPart:
    view = SegmentView(**(fields["view"] | {"live": array("Q", fields["view"]["live"])}))
    label, limits = Label(*fields["label"]), RowLimits(*fields["limits"])
    return SegmentPart(view, label, array("Q", fields["delivered"]), limits)
