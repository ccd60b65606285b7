"""The data directory: layout, format, lock and queue numbers."""

from __future__ import annotations

import json
import logging
import os
import secrets
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

from leveret.storage.commit import CommitGroup
from leveret.storage.directory.directory_format import (
    FORMAT_FILE,
    DataDirectoryError,
    DirectoryFormat,
    UpgradeError,
    complete_upgrade,
    pack_format,
    read_format,
    upgrade,
)
from leveret.storage.directory.queue_names import QUEUE_FILE, note_deleted, priorities_in, queue_path, store_path
from leveret.storage.disk.files import Files, must_read, replace_file, write_draft
from leveret.storage.format import FORMAT_VERSION, crc_of, pack_checked

_LOG: Final = logging.getLogger("leveret.storage")

LOCK_FILE: Final = "LOCK"
#: Number of its fields without the checksum.
_FIELDS: Final = 4


class QueueRecord(NamedTuple):
    """A queue's metadata on disk.

    Attributes:
        qid: The queue's number, never reused.
        salt: Salt of the checksums of its records; None if QUEUE.json is damaged.
        durable: Whether it outlives the process.
        attributes: Metadata of the broker, such as virtual host and name. Empty if damaged.
    """

    qid: int
    salt: int | None
    durable: bool
    attributes: Mapping[str, object]


class DataDirectory:
    """A data directory, locked against other processes.

    Args:
        path: Path of the directory; created if missing.
        clock: Microseconds since 1970.
    Raises:
        DirectoryInUseError: Another process has it open.
        DataDirectoryError: It was written by a newer version, cannot be upgraded, or FORMAT is damaged.
        OSError: It cannot be read or written.

    Attributes:
        path: Path of the directory.
        clock: Microseconds since 1970.
        format: Contents of the file FORMAT.
    """

    def __init__(self, files: Files, path: str, clock: Callable[[], int]) -> None:
        self._files = files
        self.clock = clock
        self.path = path.rstrip("/") or "/"
        for name in ("events", "ckpt", "q", "redo", "trash"):
            files.make_directory(f"{self.path}/{name}")
        self._lock = files.lock(f"{self.path}/{LOCK_FILE}")
        try:
            self.format = self._read_format()
        except BaseException:
            self.close()
            raise
        #: When the directories in the trash were put there, and their sizes, by name; oldest first.
        self._discarded: dict[str, tuple[int, int]] = {}
        self._kept_since: int | None = None
        self._kept_bytes = 0
        qids = [record.qid for record in self.queues()]
        self._next_qid = max(qids, default=0) + 1

    @property
    def next_qid(self) -> int:
        """The number of the next queue."""
        return self._next_qid

    @property
    def store_id(self) -> bytes:
        """Its ID, 16 random bytes."""
        return self.format.store_id

    @property
    def events(self) -> str:
        """Path of the event log."""
        return f"{self.path}/events"

    @property
    def checkpoints(self) -> str:
        """Path of the checkpoints."""
        return f"{self.path}/ckpt"

    @property
    def redo(self) -> str:
        """Path of the redo log."""
        return f"{self.path}/redo"

    @property
    def trash(self) -> str:
        """Path of the trash: directories of deleted queues."""
        return f"{self.path}/trash"

    def queue_path(self, qid: int) -> str:
        """Path of a queue's directory."""
        return queue_path(self.path, qid)

    def store_path(self, qid: int, priority: int) -> str:
        """Path of the directory of one priority of a queue."""
        return store_path(self.path, qid, priority)

    def priorities(self, qid: int) -> list[int]:
        """Return the priorities of a queue that have directories, ascending; 0 is always included."""
        return priorities_in(self._files.list_directory(self.queue_path(qid)))

    def queues(self) -> list[QueueRecord]:
        """Return all queues on disk in order of number."""
        found: list[QueueRecord] = []
        for name in self._files.list_directory(f"{self.path}/q"):
            try:
                qid = int(name, 16)
            except ValueError:
                continue
            if name == f"{qid:08x}":
                found.append(self._read_queue(qid))
        return found

    def reserve_qids(self, used: int) -> None:
        """Never assign numbers up to `used`, which deleted queues had."""
        self._next_qid = max(self._next_qid, used + 1)

    def make_queue(self, durable: bool, attributes: Mapping[str, object], qid: int | None = None) -> QueueRecord:
        """Create the directory of a new queue. It survives a crash after collect_queue()'s group has been committed.

        Args:
            durable: Whether it outlives the process.
            attributes: Metadata that JSON can represent.
            qid: Its number if its directory was lost; None for a new one.
        Raises:
            OSError: It could not be created.
        """
        qid = self._next_qid if qid is None else qid
        self.reserve_qids(qid)
        record = QueueRecord(qid, secrets.randbits(32), durable, dict(attributes))
        path = self.queue_path(qid)
        self._files.make_directory(path)
        try:
            write_draft(self._files, f"{path}/{QUEUE_FILE}", _pack_queue(record))
        except OSError:
            self._files.remove_tree(path)
            raise
        return record

    def collect_queue(self, group: CommitGroup, qid: int) -> None:
        """Add the files of make_queue() to a commit group."""
        path = self.queue_path(qid)
        group.paths[f"{path}/{QUEUE_FILE}"] = None
        group.directories[path] = group.directories[f"{self.path}/q"] = None

    def write_queue(self, record: QueueRecord) -> None:
        """Write a queue's metadata."""
        replace_file(self._files, self.queue_path(record.qid), QUEUE_FILE, _pack_queue(record))

    def mend_queue(self, record: QueueRecord) -> None:
        """Rewrite damaged metadata of a queue; the old file is kept as `.bad`."""
        path = f"{self.queue_path(record.qid)}/{QUEUE_FILE}"
        if QUEUE_FILE in self._files.list_directory(self.queue_path(record.qid)):
            self._files.rename(path, f"{path}.bad")
        self.write_queue(record)

    def discard_queue(self, qid: int, deleted: int | None) -> None:
        """Move a queue's directory to the trash, which is emptied by empty_trash().

        Args:
            qid: Number of the queue.
            deleted: Time of deletion in microseconds since 1970, logged with its name. None if it has no events.
        """
        record = self._read_queue(qid)
        if record.attributes and deleted is not None:
            try:
                note_deleted(self._files, self.events, qid, record.durable, record.attributes, deleted)
            except OSError:
                # Only readers use it.
                pass
        self._files.rename(self.queue_path(qid), f"{self.trash}/{qid:08x}")

    def keep_trash(self, since: int | None, max_bytes: int) -> None:
        """Let empty_trash() keep what was put into the trash from a time on, for a backup.

        Args:
            since: Microseconds since 1970; None to keep nothing.
            max_bytes: Maximum size of what is kept; the oldest directories go.
        """
        had = self._discarded or since is None
        self._kept_since, self._kept_bytes = since, max_bytes
        if had:
            self.empty_trash()

    def empty_trash(self) -> None:
        """Empty the trash, but what keep_trash() has said."""
        names, now, since = self._files.list_directory(self.trash), self.clock(), self._kept_since
        for name in names if since is not None else ():
            if name not in self._discarded:
                # Also what an earlier process has left.
                self._discarded[name] = now, self._size(f"{self.trash}/{name}")
        size = sum(each for _, each in self._discarded.values())
        for name in [*self._discarded] if since is not None else names:
            time, own = self._discarded.get(name, (0, 0))
            if since is None or time < since or size > self._kept_bytes:
                self._files.remove_tree(f"{self.trash}/{name}")
                self._discarded.pop(name, None)
                size -= own

    def _size(self, path: str) -> int:
        """Return the size of a file, or of all files in a directory, in bytes."""
        names = self._files.list_directory(path)
        if names:
            return sum(self._size(f"{path}/{name}") for name in names)
        try:
            return self._files.size(path)
        except OSError:
            return 0

    def close(self) -> None:
        """Release the lock."""
        self._files.close(self._lock)

    def _read_format(self) -> DirectoryFormat:
        """Read the format; upgrade the directory if it is older."""
        try:
            if complete_upgrade(self._files, self.path):
                _LOG.warning("%s: completed an upgrade that was interrupted", self.path)
            found = self._find_format()
            if found.format < FORMAT_VERSION:
                upgrade(self._files, self.path, found, FORMAT_VERSION)
                found = self._find_format()
        except UpgradeError as error:
            raise DataDirectoryError(str(error)) from error
        return found

    def _find_format(self) -> DirectoryFormat:
        found = read_format(self._files, self.path)
        if found is None:
            found = self._begin()
        if found.is_too_new:
            raise DataDirectoryError(
                f"{self.path} was written by a newer version (format {found.format}); use that version or another "
                "directory"
            )
        return found

    def _begin(self) -> DirectoryFormat:
        """Initialize an empty directory."""
        if self._files.list_directory(f"{self.path}/q"):
            path = f"{self.path}/{FORMAT_FILE}"
            raise DataDirectoryError(f"{path} is missing, but there are queues beside it; restore it from a backup")
        found = DirectoryFormat(FORMAT_VERSION, FORMAT_VERSION, os.urandom(16), self.clock())
        replace_file(self._files, self.path, FORMAT_FILE, pack_format(found.store_id, found.created))
        self._sync_parents()
        return found

    def _sync_parents(self) -> None:
        """Sync the parent directories, as far as they can be opened."""
        above = os.path.abspath(self.path)
        while above != "/":
            above = os.path.dirname(above)
            try:
                self._files.sync_directory(above)
            except OSError:
                return

    def _read_queue(self, qid: int) -> QueueRecord:
        path = f"{self.queue_path(qid)}/{QUEUE_FILE}"
        octets = must_read(path, partial(self._files.read_all, path)) or b""
        try:
            fields = json.loads(octets)
            crc = fields.pop("crc", None)
            # Files of the first version have no checksum.
            if crc != crc_of(fields) and (crc is not None or len(fields) != _FIELDS):
                return QueueRecord(qid, None, True, {})
            if fields["qid"] != qid:
                # It belongs to another queue.
                return QueueRecord(qid, None, True, {})
            salt, attributes = fields["salt"], fields["attributes"]
        except (ValueError, KeyError, TypeError, AttributeError):
            return QueueRecord(qid, None, True, {})
        if not isinstance(salt, int) or not isinstance(attributes, dict) or not 0 <= salt < 1 << 32:
            return QueueRecord(qid, None, True, {})
        return QueueRecord(qid, salt, fields.get("durable") is not False, attributes)


def _pack_queue(record: QueueRecord) -> bytes:
    return pack_checked(
        {"qid": record.qid, "salt": record.salt, "durable": record.durable, "attributes": record.attributes}
    )
