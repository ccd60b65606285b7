"""Takes backups of a data directory, while a broker runs on it or not; sends what no earlier one has sent."""

from __future__ import annotations

import os
import re
import sqlite3
import stat
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, suppress
from tempfile import TemporaryDirectory
from typing import BinaryIO, Final, NamedTuple
from zlib import crc32

from leveret.analytics.backup.layout import (
    DEFINITIONS,
    DELETED,
    LATER_DEFINITIONS,
    TAIL_BYTES,
    BackupError,
    BackupName,
    BackupRefusedError,
    Manifest,
    StoredFile,
)
from leveret.analytics.backup.moments import ROOT, BackupFiles, shown_time
from leveret.analytics.backup.repository import Repository
from leveret.analytics.backup.writers import Claim, Turn
from leveret.storage.audit_log import DIRECTORY as AUDIT
from leveret.storage.audit_log import audit_files
from leveret.storage.audit_log import file_name as audit_file_name
from leveret.storage.directory.directory_format import FORMAT_FILE, lock_for_backup
from leveret.storage.directory.queue_names import read_deleted
from leveret.storage.disk.files import DiskFiles
from leveret.storage.event_format import details_name
from leveret.storage.event_log import event_files, file_name
from leveret.storage.format import FOOTER_BYTES, FOOTER_MAGIC, Stream
from leveret.storage.readers.reader_file import hold_for_backup
from leveret.storage.recovery.checkpoint import read_checkpoints
from leveret.storage.segments.segment import Segment, segment_of_name
from leveret.storage.snapshots.dead import last_tick, latest_cut
from leveret.storage.snapshots.segments import read_manifest
from leveret.storage.snapshots.snapshot import (
    Choice,
    QueueView,
    Request,
    Snapshot,
    read_directory_format,
    take_snapshot,
)

#: Files of the data directory that a backup has beside definitions, queues, event log, audit log and checkpoints.
LOSSES: Final = "losses.json"
_SMALL_FILES: Final = (FORMAT_FILE, LOSSES, "events/deleted-queues.jsonl")
#: Octets of one object at most.
_PART_BYTES: Final = 16 << 20
#: Parts of a file above which it is sent again as a whole.
_PARTS_MAX: Final = 24
_QUEUE_FILE: Final = "QUEUE.json"
_MANIFEST: Final = "MANIFEST"
_QUEUE_NAME: Final = re.compile("[0-9a-f]{8}")
#: Seconds in which the file of definitions may be locked.
_BUSY_SECONDS: Final = 10.0
_TICK_US: Final = 1_000_000


class Captured(NamedTuple):
    """A backup that was taken.

    Attributes:
        name: Its number, moment and kind.
        files: Number of its files.
        bytes: Their size.
        sent: Bytes that were sent for it.
    """

    name: BackupName
    files: int
    bytes: int
    sent: int


class Capture:
    """Takes the backups of one data directory. Only one process may do so.

    Args:
        data_dir: The data directory.
        repository: Where the backups go.
        turn: In a cluster, the leader's choice of this node.
    Raises:
        BackupRefusedError: Another process does so, the repository is of another data directory or in this one.
        DataDirectoryError: It is no data directory, or a newer version has written it.
        AnalyticsError: The repository cannot be read or made.
    """

    def __init__(self, data_dir: str, repository: Repository, turn: Turn | None = None) -> None:
        self._data_dir = data_dir.rstrip("/") or "/"
        self._turn = turn
        self._repository = repository
        self._store_id = read_directory_format(DiskFiles(), self._data_dir).store_id
        if repository.is_inside(self._data_dir):
            raise BackupRefusedError(f"{repository.shown} is in the data directory; put the backups somewhere else")
        lock = lock_for_backup(self._data_dir)
        if lock is None:
            raise BackupRefusedError(f"another process takes backups of {self._data_dir}; run one")
        self._lock = lock
        try:
            repository.make(self._store_id)
            self._claim = Claim(repository, self._data_dir, turn)
            names = repository.backups()
            self._last = self._base = names[-1] if names else BackupName(0, 0, False)
            self._files = repository.files_at(self._last) if names else {}
        except BaseException:
            os.close(lock)
            raise
        #: Until the first backup is taken, if the files of the last one may be those of another directory.
        self._other: Continuation | None = None
        if names and self._claim.is_other:
            self._other = Continuation(self._data_dir, self._store_id, repository, self._last, self._files)
        self._own: set[BackupName] = set()
        #: What changes when a queue's files do, by queue: in the last valid backup, and in this one.
        self._last_signatures: dict[int, object] = {}
        self._signatures: dict[int, object] = {}
        self._chosen: set[int] = set()
        self._stored: set[tuple[str, int]] = set()
        self._sent = 0
        #: The definitions that were read since the last backup, and what changes when they do.
        self._definitions: list[tuple[int, StoredFile]] = []
        self._definitions_state: object = None
        self._last_definitions: StoredFile | None = None
        self._began = time.time_ns() // 1000

    def close(self) -> None:
        """Let other processes take backups."""
        os.close(self._lock)

    def take(self, is_full: bool = True) -> Captured:
        """Take a backup.

        Args:
            is_full: Whether its manifest names all files; otherwise it builds on the last one.
        Raises:
            SnapshotError: There is nothing to read yet, or files are removed faster than they can be linked.
            BackupRefusedError: Another process writes to the repository now.
            AnalyticsError: The repository could not be written; what was sent counts not.
            OSError: The data directory cannot be read.
        """
        self._sent, began = 0, time.monotonic()
        # What the last valid backup has is not looked at again.
        self._stored = {part for file in self._files.values() for part in file.parts}
        if self._other is not None:
            self._other.wait_for_last_cut()
        self.note_definitions()
        is_continued = True
        request = Request(events=True, dead_too=True, kind="", purpose="backup", choose=self._choose)
        with take_snapshot(self._data_dir, request) as snapshot:
            if self._other is not None:
                is_continued = self._other.has_last_events(snapshot)
            files = dict(self._events(snapshot))
            for queue in snapshot.queues:
                files |= self._queue(queue, snapshot)
        files |= self._audit()
        files |= self._deleted_queues()
        if self._other is not None:
            is_continued = is_continued and self._other.knows_all_segments(files)
        there = {f"{qid:08x}" for qid in self._signatures}
        files |= self._small_files(there)
        unchanged = there - {f"{qid:08x}" for qid in self._chosen}
        files |= {path: file for path, file in self._files.items() if path[2:10] in unchanged and path[:2] == "q/"}
        is_full = is_full or not is_continued or not self._last.number
        name = BackupName(
            self._last.number + (1 if is_continued else 2), max(snapshot.cut.time, self._last.time), is_full
        )
        changes: dict[str, StoredFile | None] = {**files}
        if not is_full:
            changes = {path: file for path, file in files.items() if self._files.get(path) != file}
            changes |= dict.fromkeys(self._files.keys() - files.keys())
        if changes or is_full:
            about = {"sent": self._sent, "seconds": round(time.monotonic() - began, 3)}
            self._write(Manifest(name, changes, about, self._definitions, self._claim.number))
            self._last = name
            self._definitions = []
        self._other = None
        self._files, self._last_signatures = files, self._signatures
        return Captured(self._last, len(files), sum(file.size for file in files.values()), self._sent)

    def _write(self, manifest: Manifest) -> None:
        """Write a manifest, unless somebody else writes to the repository now."""
        self._claim.check()
        if manifest.name.is_full:
            self._repository.delete_strays(self._base, self._own, self._claim.number)
        self._repository.write_manifest(manifest)
        self._own.add(manifest.name)
        try:
            self._claim.check()
        except BackupRefusedError:
            # This process may have been paused before it was written.
            self._repository.delete([manifest.name])
            raise

    def check(self) -> None:
        """Raise BackupRefusedError if another process writes to the repository now."""
        self._claim.check()

    def hold(self) -> int:
        """Let the broker keep what it drops from the last backup on, until the next one has it; return since when.

        Raises:
            OSError: The file that says so could not be written.
        """
        since = self._last.time or self._began
        hold_for_backup(DiskFiles(), self._data_dir, since, time.time_ns() // 1000)
        return since

    def note_definitions(self) -> None:
        """Read the definitions if they have changed, for moments before the next backup.

        Raises:
            AnalyticsError, OSError: See take().
        """
        state = self._state_of_definitions()
        if state == self._definitions_state:
            return
        self._last_definitions, self._definitions_state = self._send_definitions(), state
        # After they were read: they must not have what came after a moment.
        read = time.time_ns() // 1000
        if self._turn is not None:
            # Another machine's clock may be ahead of this one's; its ticks are a second apart.
            tick = last_tick(DiskFiles(), f"{self._data_dir}/events", self._store_id)
            read = max(read, 0 if tick is None else tick.time + _TICK_US)
        self._definitions.append((read, self._last_definitions))

    def _send_definitions(self) -> StoredFile:
        with TemporaryDirectory() as directory:
            self._copy_definitions(f"{directory}/{DEFINITIONS}")
            return self._send_whole(f"{directory}/{DEFINITIONS}")

    def _state_of_definitions(self) -> object:
        """Return what changes when the definitions do."""
        found = []
        for name in (DEFINITIONS, f"{DEFINITIONS}-wal"):
            with suppress(FileNotFoundError):
                status = os.stat(f"{self._data_dir}/{name}")
                found.append((name, status.st_ino, status.st_size, status.st_mtime_ns))
        return found

    # --- queues -------------------------------------------------------------------------------------------------------

    def _choose(self, choice: Choice) -> Collection[int]:
        """Return the queues whose files are not as they were at the last backup."""
        # It is called again if there has to be a later cut, so those of the last backup stay until this one is valid.
        before, self._signatures = self._last_signatures, {qid: self._signature(qid) for qid in choice.wanted}
        self._chosen = {qid for qid, found in self._signatures.items() if found is None or before.get(qid) != found}
        return self._chosen

    def _signature(self, qid: int) -> object:
        """Return what changes when a queue's files do; None if it cannot be known."""
        found: list[tuple[str, int, int]] = []
        waiting = [f"{self._data_dir}/q/{qid:08x}"]
        try:
            for directory in waiting:
                with os.scandir(directory) as entries:
                    for each in entries:
                        if each.is_dir(follow_symlinks=False):
                            waiting.append(each.path)
                        else:
                            status = each.stat(follow_symlinks=False)
                            found.append((each.path, status.st_size, status.st_mtime_ns))
        except OSError:
            return None
        return sorted(found)

    def _queue(self, queue: QueueView, snapshot: Snapshot) -> Iterator[tuple[str, StoredFile]]:
        directory = f"q/{queue.qid:08x}"
        yield from self._small(f"{directory}/{_QUEUE_FILE}").items()
        for store in queue.stores:
            place = f"{directory}/p{store.priority:03d}" if store.priority else directory
            known = read_manifest(DiskFiles(), f"{self._data_dir}/{place}")
            yield from self._small(f"{place}/{_MANIFEST}").items()
            # What was deleted before the last backup is in no moment that can be restored from this one.
            since = self._last.time or snapshot.cut.time
            wanted = {key for key, state in known.items() if not (state.deleted and state.deleted < since)}
            for view in store.segments:
                key = (view.stream, view.first_seq, view.generation)
                if view.stream == Stream.DURABLE and (key in wanted or key not in known):
                    wanted.discard(key)
                    yield f"{place}/{view.file_name}", self._send(f"{place}/{view.file_name}", view.path)
            # One that was compacted is in no view as long as those that it replaces are there.
            for key in wanted:
                name = Segment(Stream(key[0]), key[1], key[2]).name
                for local in (f"{self._data_dir}/{place}/{name}", f"{self._data_dir}/{place}/trash/{name}"):
                    if key[0] == Stream.DURABLE and key[2] and os.path.exists(local):
                        with suppress(FileNotFoundError):
                            yield f"{place}/{name}", self._send(f"{place}/{name}", local)

    def _deleted_queues(self) -> dict[str, StoredFile]:
        """Send the files of queues that were deleted since the last backup, as far as they are there."""
        files: dict[str, StoredFile] = {}
        trash = f"{self._data_dir}/trash"
        deleted = {each.qid: each.deleted for each in read_deleted(DiskFiles(), f"{self._data_dir}/events")}
        for name in DiskFiles().list_directory(trash):
            if not _QUEUE_NAME.fullmatch(name) or deleted.get(int(name, 16), 0) < self._last.time:
                continue
            for directory, _, names in os.walk(f"{trash}/{name}"):
                # What the queue had dropped before is beside the rest, as in any snapshot.
                place = f"q/{os.path.relpath(directory, trash).removesuffix('/trash')}"
                for each in names:
                    segment = segment_of_name(each)
                    is_small = segment is None and each in (_QUEUE_FILE, _MANIFEST)
                    if is_small or (segment is not None and segment.stream == Stream.DURABLE):
                        with suppress(FileNotFoundError):
                            path, local = f"{place}/{each}", f"{directory}/{each}"
                            found = self._send_whole(local) if is_small else self._send(path, local)
                            files[f"{DELETED}/{path}"] = found
        return files

    # --- the rest -----------------------------------------------------------------------------------------------------

    def _events(self, snapshot: Snapshot) -> Iterator[tuple[str, StoredFile]]:
        for view in snapshot.events:
            path = f"events/{file_name(view.file)}"
            yield path, self._send(path, view.path, view.end)
            details = f"{os.path.dirname(view.path)}/{details_name(view.file)}"
            with suppress(FileNotFoundError):
                path = f"events/{details_name(view.file)}"
                yield path, self._send(path, details)

    def _audit(self) -> dict[str, StoredFile]:
        """Send the audit log. Its end may be later than the cut, and in the middle of a record."""
        files: dict[str, StoredFile] = {}
        for time_us in audit_files(DiskFiles(), f"{self._data_dir}/{AUDIT}"):
            path = f"{AUDIT}/{audit_file_name(time_us)}"
            # The broker removes what is too old.
            with suppress(FileNotFoundError):
                files[path] = self._send(path, f"{self._data_dir}/{path}")
        return files

    def _small_files(self, known: Collection[str]) -> dict[str, StoredFile]:
        """Send files that are replaced as a whole, without those of queues whose directories are known by name."""
        assert self._last_definitions is not None
        files = {DEFINITIONS: self._last_definitions}
        if self._state_of_definitions() != self._definitions_state:
            # What was confirmed before the cut is in a queue that these have.
            files[LATER_DEFINITIONS] = self._send_definitions()
        paths = [*_SMALL_FILES, *(f"ckpt/{name}" for name in DiskFiles().list_directory(f"{self._data_dir}/ckpt"))]
        # A queue that was declared since the cut is in the definitions, and must have its directory.
        queues = DiskFiles().list_directory(f"{self._data_dir}/q")
        paths += [f"q/{name}/{_QUEUE_FILE}" for name in queues if name not in known]
        for path in paths:
            files |= self._small(path)
        return files

    def _copy_definitions(self, target: str) -> None:
        source = f"file:{self._data_dir}/{DEFINITIONS}?mode=ro"
        try:
            with (
                closing(sqlite3.connect(source, uri=True, timeout=_BUSY_SECONDS)) as database,
                closing(sqlite3.connect(target)) as copy,
            ):
                database.backup(copy)
        except sqlite3.Error as error:
            raise OSError(f"{self._data_dir}/{DEFINITIONS} cannot be read: {error}") from error

    def _small(self, path: str) -> dict[str, StoredFile]:
        """Send a file that is replaced as a whole, if it exists."""
        try:
            if not stat.S_ISREG(os.lstat(f"{self._data_dir}/{path}").st_mode):
                return {}
            return {path: self._send_whole(f"{self._data_dir}/{path}")}
        except FileNotFoundError:
            return {}

    def _send_whole(self, local: str) -> StoredFile:
        with open(local, "rb") as file:
            octets = file.read()
        parts = [octets[at : at + _PART_BYTES] for at in range(0, len(octets), _PART_BYTES)]
        return StoredFile(len(octets), crc32(octets[-TAIL_BYTES:]), tuple(self._put(part) for part in parts))

    def _send(self, path: str, local: str, end: int | None = None) -> StoredFile:
        """Send what has been appended to a file since the last backup.

        Args:
            path: Its path in the data directory.
            local: Where it can be read.
            end: Its size in bytes; None for all of it.
        """
        before = self._files.get(path)
        with open(local, "rb") as file:
            size = os.fstat(file.fileno()).st_size if end is None else end
            parts: list[tuple[str, int]] = []
            at = 0
            if before is not None and before.size <= size and self._is_same(file, before):
                if before.size == size:
                    return before
                if len(before.parts) < _PARTS_MAX:
                    parts, at = list(before.parts), before.size
            file.seek(at)
            while at < size:
                octets = file.read(min(_PART_BYTES, size - at))
                if not octets:
                    break
                parts.append(self._put(octets))
                at += len(octets)
            return StoredFile(at, _tail(file.fileno(), at), tuple(parts))

    def _is_same(self, file: BinaryIO, before: StoredFile) -> bool:
        """Return whether a file begins with what the last backup has of it."""
        if _tail(file.fileno(), before.size) != before.tail:
            return False
        # The checksum of a segment that is full is at its end.
        footer = os.pread(file.fileno(), len(FOOTER_MAGIC), max(0, before.size - FOOTER_BYTES))
        return self._other is None or footer == FOOTER_MAGIC or self._repository.is_beginning(before, file)

    def _put(self, octets: bytes) -> tuple[str, int]:
        part = self._repository.put(octets, self._stored)
        self._sent += len(octets) if part not in self._stored else 0
        return part


def _tail(handle: int, size: int) -> int:
    """Return the checksum of the end of a file that has, or had, this size."""
    first = max(0, size - TAIL_BYTES)
    return crc32(os.pread(handle, size - first, first))


#: Seconds for which a copy may be behind the last backup, and after which is looked again.
_CATCH_UP_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 0.1


class Continuation:
    """The last backup of another data directory with the same ID, and the directory that may go on from there.

    Args:
        data_dir: The data directory.
        store_id: Its ID.
        repository: Where the backups are.
        last: The last backup.
        files: Its files by path.
    """

    def __init__(
        self,
        data_dir: str,
        store_id: bytes,
        repository: Repository,
        last: BackupName,
        files: Mapping[str, StoredFile],
    ) -> None:
        self._data_dir = data_dir
        self._store_id = store_id
        self._repository = repository
        self._last = last
        self._files = files

    def wait_for_last_cut(self) -> None:
        """Wait until the directory goes on to the last backup's moment.

        Raises:
            BackupError: It does not.
        """
        deadline = time.monotonic() + _CATCH_UP_SECONDS
        while True:
            checkpoints = read_checkpoints(DiskFiles(), f"{self._data_dir}/ckpt", [])
            cut = latest_cut(DiskFiles(), f"{self._data_dir}/events", self._store_id, checkpoints)
            if cut is not None and cut.time >= self._last.time:
                return
            if time.monotonic() > deadline:
                end = "before anything is in it" if cut is None else f"at {shown_time(cut.time)}"
                raise BackupError(
                    f"{self._data_dir} ends {end}, and the last backup in {self._repository.shown} is of "
                    f"{shown_time(self._last.time)}"
                )
            time.sleep(_LOOK_SECONDS)

    def has_last_events(self, snapshot: Snapshot) -> bool:
        """Return whether the directory has the event log of the last backup: then it has all from before its cut."""
        last = max(event_files(BackupFiles(self._repository, self._files), f"{ROOT}/events"), default=0)
        if not last:
            # Nothing had happened yet.
            return True
        found = [view.path for view in snapshot.events if view.file == last]
        if not found:
            return False
        with open(found[0], "rb") as file:
            return self._repository.is_beginning(self._files[f"events/{file_name(last)}"], file)

    def knows_all_segments(self, files: Mapping[str, StoredFile]) -> bool:
        """Return whether the last backup has no segments that the directory has never had.

        Args:
            files: What there is in the directory, by path.
        """
        known: dict[str, Collection[tuple[int, int, int]]] = {}
        deleted = {f"{each.qid:08x}" for each in read_deleted(DiskFiles(), f"{self._data_dir}/events")}
        for path in self._files.keys() - files.keys():
            directory, _, name = path.rpartition("/")
            segment = segment_of_name(name)
            if segment is None or path.startswith(f"{DELETED}/") or path[2:10] in deleted:
                continue
            if directory not in known:
                known[directory] = read_manifest(DiskFiles(), f"{self._data_dir}/{directory}").keys()
            if (segment.stream, segment.first_seq, segment.generation) not in known[directory]:
                return False
        return True
