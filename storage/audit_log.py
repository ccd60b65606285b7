"""The audit log: what was done, by whom and from where, in files that only grow until they are too old.

Files are `audit/au-….log` in the data directory, with the time of the first record in their names, in microseconds
since 1970. Records are JSON objects (json_records.py):

    at       microseconds since 1970
    kind     what was done, as in the routing keys of events: `queue.deleted`
    user     name of the user
    host     address of the client; missing if the broker has done it by itself
    broker   true if it is a consequence of what the user has done: the bindings of a deleted queue
    vhost    virtual host of the object; missing if it has none
    object   name of the object
    count    number of messages, or of failed logins that are counted in one record; missing if it is about neither
    details  what else the event says: an object

Older versions ignore these files. What is written survives the death of the process. It is synced about a second later,
in the thread that syncs the stores, or when the broker stops. Each start begins another file, so who has read a file up
to some offset has not missed anything before it, whatever the machine's end has taken of it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, Final
from zlib import crc32

from leveret.storage.disk.files import Files, TornWriteError, numbers_in, sync_path, write_file
from leveret.storage.json_records import HEAD, pack_record, unpack_records

_LOG: Final = logging.getLogger("leveret.audit")
#: Directory of the files in the data directory.
DIRECTORY: Final = "audit"
#: Microseconds by which a record can be older than the name of its file says: it has waited for the disk.
LATE: Final = 600_000_000
_PREFIX: Final = "au-"
_DAY: Final = 86_400_000_000
#: Bytes of records that wait for a disk that refuses them; further ones are lost.
_WAITING_MAX: Final = 16 << 20


def file_name(time: int) -> str:
    """Return the name of the file whose first record is of a time, in microseconds since 1970."""
    return f"{_PREFIX}{time:020d}.log"


def audit_files(files: Files, directory: str) -> list[int]:
    """Return the times in the names of all files of a directory, ascending."""
    return numbers_in(files, directory, _PREFIX, ".log", 20)


class AuditLog:
    """Writes the audit log.

    Args:
        data_dir: Path of the data directory.
        store_id: Its ID.
        clock: Microseconds since 1970, never going back.
        keep_seconds: Age at which a file is removed; 0 for never.
        keep_bytes: Size of all files at which the oldest is removed; 0 for any size.
        file_bytes: Size at which the next file is begun; it is also begun each day.
    Raises:
        OSError: The directory cannot be used.

    Attributes:
        directory: Path of the directory of the files.
        salt: The checksum of the store id.
        lost: Number of records that could not be written.
    """

    def __init__(
        self,
        files: Files,
        data_dir: str,
        store_id: bytes,
        clock: Callable[[], int],
        keep_seconds: int = 0,
        keep_bytes: int = 0,
        file_bytes: int = 4 << 20,
    ) -> None:
        self.directory = f"{data_dir}/{DIRECTORY}"
        self.salt = crc32(store_id)
        self.lost = 0
        self._files = files
        self._clock = clock
        self._keep = keep_seconds * 1_000_000
        self._keep_bytes = keep_bytes
        self._file_bytes = file_bytes
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._has_failed = False
        files.make_directory(self.directory)
        known = audit_files(files, self.directory)
        self._time = known[-1] if known else 0
        self._handle = -1
        self._size = 0
        #: Paths of files with records that have not been synced, and whether one of them is new.
        self._unsynced: dict[str, None] = {}
        self._has_new = False
        if known:
            self._mend_last()
        else:
            files.sync_directory(data_dir)

    def _mend_last(self) -> None:
        """Cut off what a crash has left of a record at the end of the newest file."""
        path = self._path
        octets = self._files.read_all(path) or b""
        size = sum(HEAD.size + len(each) for each in unpack_records(octets, self.salt))
        if size < len(octets):
            _LOG.warning("%s: the last %d bytes are no whole record, and are cut off", path, len(octets) - size)
            handle = self._files.open(path)
            try:
                self._files.truncate(handle, size)
            finally:
                self._files.close(handle)

    @property
    def _path(self) -> str:
        """Path of the newest file."""
        return f"{self.directory}/{file_name(self._time)}"

    def add(self, record: Mapping[str, Any]) -> None:
        """Add a record, which is written by write()."""
        octets = pack_record(json.dumps(record, separators=(",", ":")).encode(), self.salt)
        if self._waiting_bytes + len(octets) > _WAITING_MAX:
            self.lost += 1
            return
        self._waiting.append(octets)
        self._waiting_bytes += len(octets)

    def write(self) -> None:
        """Write the records that wait; what the disk refuses is tried again next time."""
        if not self._waiting:
            return
        octets = b"".join(self._waiting)
        try:
            if self._handle < 0 or self._is_full():
                self._begin_file()
            write_file(self._files, self._handle, octets, self._size)
        except OSError as error:
            if isinstance(error, TornWriteError):
                # Nothing after a torn record is read: the next file begins.
                self.abandon()
            if not self._has_failed:
                _LOG.error("the audit log cannot be written to %s: %s", self.directory, error)
            self._has_failed = True
            return
        if self._has_failed:
            _LOG.warning("the audit log is written again; %d records are lost", self.lost)
        self._has_failed = False
        self._size += len(octets)
        self._unsynced[self._path] = None
        self._waiting, self._waiting_bytes = [], 0

    def take_unsynced(self) -> tuple[list[str], bool]:
        """Return the paths of the files with records that have not been synced, and whether one of them is new.

        The caller syncs them, and the directory if one is new.
        """
        found = [*self._unsynced], self._has_new
        self._unsynced.clear()
        self._has_new = False
        return found

    def _is_full(self) -> bool:
        return bool(self._size) and (self._size >= self._file_bytes or self._clock() - self._time >= _DAY)

    def _begin_file(self) -> None:
        time = max(self._clock(), self._time + 1)
        handle = self._files.open(f"{self.directory}/{file_name(time)}", create=True)
        self.abandon()
        self._handle, self._time, self._size = handle, time, 0
        self._has_new = True
        self.drop_old()

    def drop_old(self) -> None:
        """Remove files all of whose records are too old, and the oldest ones while all are too large together.

        Raises:
            OSError: A file cannot be removed.
        """
        known = audit_files(self._files, self.directory)
        paths = {time: f"{self.directory}/{file_name(time)}" for time in known}
        left = sum(self._files.size(path) for path in paths.values()) if self._keep_bytes else 0
        # A file ends where the next one begins; the newest one stays.
        for time, end in pairwise(known):
            is_old = self._keep and end < self._clock() - self._keep
            if not is_old and left <= self._keep_bytes:
                return
            left -= self._files.size(paths[time]) if self._keep_bytes else 0
            self._files.unlink(paths[time])

    def close(self) -> None:
        """Write what waits, sync it, and close the file.

        Raises:
            OSError: It cannot be synced.
        """
        self.write()
        self.abandon()
        paths, has_new = self.take_unsynced()
        for path in paths:
            sync_path(self._files, path)
        if has_new:
            self._files.sync_directory(self.directory)

    def abandon(self) -> None:
        """Close the file and leave it as it is, as the death of the process does."""
        if self._handle >= 0:
            self._files.close(self._handle)
            self._handle = -1
