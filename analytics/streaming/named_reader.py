"""The named reader of a streaming query: tells the broker up to where the query has read, so that it keeps the rest."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from leveret.analytics.data_loss import report_data_loss
from leveret.analytics.errors import AnalyticsError
from leveret.analytics.options import Options
from leveret.analytics.streaming.next_numbers import numbers_in
from leveret.storage.disk.files import DiskFiles
from leveret.storage.readers.reader_file import (
    READERS,
    ReaderFile,
    ReaderFileError,
    lock_path,
    read_reader,
    write_reader,
)
from leveret.storage.snapshots.memory import FileState, file_state

#: Microseconds after which the file is written again although nothing has been read.
_HEARTBEAT: Final = 5_000_000
#: Seconds that a query waits for another one of its reader: that may be the one which it follows, and which is ending.
_PATIENCE = 10.0


class NamedReader:
    """Keeps the file of a query's reader.

    Args:
        options: Options of the query; without a name nothing is done.
        path: The data directory.
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
