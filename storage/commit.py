r"""Commits: syncs written data before waiting callbacks such as confirms are called.

End of a turn (`MessageStores.write`). Every dirty store writes once, then the event log. If a publisher waits, a
commit group goes to the committer thread, which syncs and calls back. A channel in confirm mode notes which of its
numbers wait (`Confirms.hold_next`). A message that is settled before it was written is never written.

Messages that move. Dead letters, messages returned to a quorum queue, delayed messages that are due and `move_messages`
are copied from one store to another. For a moment they are in both, never in none (`Departures` in `engine.py`).
Settling the original removes it from all counts, but its event is not written yet and its record still counts as live
for compaction and checkpoints (`stores/settlement.py`). When all stores have written, the turn starts a commit group
with the copies, even if no publisher waits. When the group calls back, and the definitions that there were at its start
are written, since a queue that a crash undoes takes the copies with it, the events are written, and segments without
live messages are deleted. So no sync of the event log, which all queues share, can remove an original whose copy is not
on disk. A crash in between leaves both: dead-lettering is at-least-once here. On a full disk the copies cannot be
written, no group starts, and the originals stay. A tick names the originals that have copies, so that a snapshot has
each message once; recovery does not look at that. With `storage.sync: interval` the originals wait for the next sync,
with `off` for nothing. A clean stop waits for the group, and so does deleting a queue that messages are leaving.

A write that failed is retried with the next one, and once a second. A file whose sync failed is not trusted again.

Syncs. One file is synced directly, a few files in threads. From three segments in a group on, if each has little data,
the group is copied to the shared redo log and only that is synced. `storage.sync` says whether confirms wait for syncs
(`always`), syncs happen at intervals, or the operating system decides.

The redo log. It has small writes of commit groups to many segments, which are synced later, before it is removed. After
a power failure, recovery restores missing records of segments from it.

    redo/redo-<number, 10 digits>.log: consecutive frames
    frame    u32 magic "LVTR" | u32 bytes of what follows | u32 crc of that XOR crc(store id), then entries
    entry    u32 qid | u32 priority | u32 bytes | records as in the segment
"""

from __future__ import annotations

import logging
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from enum import Enum
from functools import partial
from queue import SimpleQueue
from time import monotonic, sleep
from typing import Final, Protocol, TypeAlias, TypeVar
from zlib import crc32

from leveret.storage.callbacks import call_each
from leveret.storage.disk.files import Files, is_shortage, must_read, numbers_in, sync_path, write_file
from leveret.storage.format import SEGMENT_HEADER_BYTES, check_record

_MAGIC: Final = b"LVTR"
_FRAME: Final = struct.Struct("<4sII")
_ENTRY: Final = struct.Struct("<III")
#: Above this mean number of bytes per segment, writing twice costs more than syncing the segments.
_MEAN_BYTES_MAX: Final = 64 << 10

#: Octets of records by queue and priority.
RedoParts = dict[tuple[int, int], list[bytes]]


class Tail:
    """The end of a segment that is not yet synced.

    Attributes:
        qid: Number of the queue.
        priority: Priority of the store.
        path: Path of the segment.
        start: Offset of the first byte that was in no earlier commit group.
        end: Offset of the end.
        records: What was written there, without the header of the segment; None if it has to be read.
        is_released: Whether no commit group uses the segment's handle for it any more.
    """

    __slots__ = ("end", "is_released", "path", "priority", "qid", "records", "start")

    def __init__(
        self, qid: int, priority: int, path: str, start: int, end: int, records: list[bytes] | None = None
    ) -> None:
        self.qid: Final = qid
        self.priority: Final = priority
        self.path: Final = path
        self.start = start
        self.end: Final = end
        self.records = records
        self.is_released = False

    def prepend(self, earlier: Tail) -> None:
        """Add the tail that ends where this one starts."""
        self.start = earlier.start
        if earlier.records is None or self.end - self.start > _MEAN_BYTES_MAX:
            self.records = None
        elif self.records is not None:
            self.records = earlier.records + self.records

    def release(self) -> None:
        """Note that it is synced, or will not be, and free its memory."""
        self.is_released = True
        self.records = None


class RedoLog:
    """Writes the redo log. Used only by the committer's thread.

    Args:
        directory: Path of the redo log's directory.
        store_id: ID of the data directory, 16 bytes.
        min_segments: Minimum number of segments for which it is used; 0 for never.
        file_bytes: Size in bytes at which a new file is started.
        age: Age in seconds at which a new file is started.
    """

    def __init__(
        self,
        files: Files,
        directory: str,
        store_id: bytes,
        min_segments: int = 3,
        file_bytes: int = 32 << 20,
        age: float = 30.0,
    ) -> None:
        self._files = files
        self._directory = directory
        self._salt = crc32(store_id)
        self._min_segments = min_segments
        self._file_bytes = file_bytes
        self._age = age
        self._handle = -1
        self._number = 0
        self._size = 0
        self._begun = 0.0
        #: Whether its directory entry has been synced.
        self._entry_synced = False
        #: Paths of segments to sync before the file may be removed.
        self._covered: dict[str, None] = {}

    def write(self, tails: dict[int, Tail]) -> bool:
        """Write and sync the tails of segments.

        Args:
            tails: Tails by handle.
        Returns:
            False if nothing was written and the segments must be synced instead.
        Raises:
            OSError: A sync failed.
        """
        if not 0 < self._min_segments <= len(tails):
            return False
        size = 0
        for tail in tails.values():
            size += tail.end - tail.start
        if size > _MEAN_BYTES_MAX * len(tails):
            return False
        parts: list[bytes] = []
        for handle, tail in tails.items():
            records = tail.records
            if records is None:
                start = max(tail.start, SEGMENT_HEADER_BYTES)
                records = [self._files.pread(handle, tail.end - start, start)]
            length = 0
            for octets in records:
                length += len(octets)
            parts.append(_ENTRY.pack(tail.qid, tail.priority, length))
            parts += records
        payload = b"".join(parts)
        frame = _FRAME.pack(_MAGIC, len(payload), crc32(payload) ^ self._salt) + payload
        try:
            if self._handle < 0:
                self._begin()
            write_file(self._files, self._handle, frame, self._size)
        except OSError:
            # Usually no space.
            return False
        self._size += len(frame)
        self._files.fdatasync(self._handle)
        if not self._entry_synced:
            self._files.sync_directory(self._directory)
            self._entry_synced = True
        covered = self._covered
        for tail in tails.values():
            covered[tail.path] = None
        return True

    def sync_covered_if_due(self, pool: Executor | None = None) -> None:
        """If the file is large or old, sync all segments it covers and remove it.

        Args:
            pool: Executor for the syncs; None to sync in this thread.
        Raises:
            OSError: A sync failed; the file is kept.
        """
        if self._handle < 0 or (self._size < self._file_bytes and monotonic() - self._begun < self._age):
            return
        for _ in (pool.map if pool is not None else map)(partial(sync_path, self._files), [*self._covered]):
            pass
        self.clear()

    def clear(self) -> None:
        """Remove the file: all segments have been synced."""
        if self._handle >= 0:
            self._files.close(self._handle)
            self._handle = -1
            self._files.unlink(self._path())
        self._covered.clear()

    def close(self) -> None:
        """Close the file and keep it for recovery."""
        if self._handle >= 0:
            self._files.close(self._handle)
            self._handle = -1

    def _begin(self) -> None:
        self._number = max([self._number, *_numbers(self._files, self._directory)]) + 1
        self._handle = self._files.open(self._path(), create=True)
        self._size = 0
        self._begun = monotonic()
        self._entry_synced = False

    def _path(self) -> str:
        return f"{self._directory}/{_name(self._number)}"


def read_redo(files: Files, directory: str, store_id: bytes, damaged: dict[str, str]) -> RedoParts:
    """Return the contents of the redo logs of an earlier run.

    Args:
        directory: Path of their directory.
        store_id: ID of the data directory.
        damaged: Receives descriptions of damage by path.
    Raises:
        UnreadableFileError: One of them cannot be read.
    """
    found: RedoParts = {}
    for number in _numbers(files, directory):
        path = f"{directory}/{_name(number)}"
        octets = must_read(path, partial(files.read_all, path)) or b""
        end = 0
        for at, payload in _frames(octets, crc32(store_id)):
            if at > end:
                damaged[path] = f"{at - end} bytes in it are not a whole frame; records in them may be lost"
            end = at + _FRAME.size + len(payload)
            for key, records in _entries(payload):
                found.setdefault(key, []).append(records)
    return found


def records_of(parts: Sequence[bytes], salt: int) -> dict[int, bytes]:
    """Return the complete records in parts of a redo log by sequence number.

    Args:
        parts: Parts of one store.
        salt: Checksum salt of the queue.
    """
    found: dict[int, bytes] = {}
    for octets in parts:
        at = 0
        while (header := check_record(octets, at, salt)) is not None:
            found[header.seq] = octets[at : at + header.rec_len]
            at += header.rec_len
    return found


def remove_redo(files: Files, directory: str) -> None:
    """Remove all redo logs, after the segments have been synced."""
    for number in _numbers(files, directory):
        files.unlink(f"{directory}/{_name(number)}")


def _frames(octets: bytes, salt: int) -> Iterator[tuple[int, bytes]]:
    """Iterate over complete frames as (offset, payload); the last frame may be incomplete after a crash."""
    at = 0
    while (at := octets.find(_MAGIC, at)) >= 0:
        if len(octets) - at < _FRAME.size:
            return
        _, length, crc = _FRAME.unpack_from(octets, at)
        payload = octets[at + _FRAME.size : at + _FRAME.size + length]
        if len(payload) == length and crc32(payload) ^ salt == crc:
            yield at, payload
            at += _FRAME.size + length
        else:
            at += 1


def _entries(payload: bytes) -> Iterator[tuple[tuple[int, int], bytes]]:
    at = 0
    while at + _ENTRY.size <= len(payload):
        qid, priority, length = _ENTRY.unpack_from(payload, at)
        at += _ENTRY.size
        yield (qid, priority), payload[at : at + length]
        at += length


def _name(number: int) -> str:
    return f"redo-{number:010d}.log"


def _numbers(files: Files, directory: str) -> list[int]:
    return numbers_in(files, directory, "redo-", ".log", 10)


_LOG: Final = logging.getLogger("leveret.storage")
#: Seconds between attempts while no file descriptors are left, and maximum number of attempts during shutdown.
_RETRY_PAUSE: Final = 0.1
_MAX_TRIES_AT_END: Final = 50
#: Seconds for copies at the end.
_COPIES_SECONDS: Final = 10.0

#: Threads that sync in parallel, enough to saturate a disk.
SYNC_THREADS: Final = 8
_PARALLEL_ABOVE: Final = 2
T = TypeVar("T")

#: What the thread gets: a group, an event to set when all groups before it are synced, or None for the end.
_Task: TypeAlias = "CommitGroup | threading.Event | None"


class SyncMode(Enum):
    """When written data is synced."""

    #: At once. Confirms wait for the sync.
    ALWAYS = "always"
    #: Periodically. Confirms do not wait. A crash of the process loses nothing; a crash of the machine loses data
    #: confirmed since the last sync.
    INTERVAL = "interval"
    #: When the broker stops. Before that, the operating system decides.
    OFF = "off"


class CommitGroup:
    """Files to sync, file actions after the syncs, and callbacks.

    Attributes:
        data: Handles of segments, synced first.
        tails: Unsynced ends of segments by handle; synced with `data`, unless the redo log has taken them.
        paths: Paths of segments that were closed before they were synced.
        directories: Paths of directories with new files, synced next.
        journals: Handles of event log files, synced after the data they refer to.
        journal_paths: Paths of manifests, which are not open.
        file_actions: Called after the syncs, in the same thread. Failures are logged.
        callbacks: Called last, in the thread that owns the stores.
    """

    __slots__ = ("callbacks", "data", "directories", "file_actions", "journal_paths", "journals", "paths", "tails")

    def __init__(self) -> None:
        self.data: dict[int, None] = {}
        self.tails: dict[int, Tail] = {}
        self.paths: dict[str, None] = {}
        self.directories: dict[str, None] = {}
        self.journals: dict[int, None] = {}
        self.journal_paths: dict[str, None] = {}
        self.file_actions: list[Callable[[], object]] = []
        self.callbacks: list[Callable[[], None]] = []

    def __bool__(self) -> bool:
        syncs = self.data or self.tails or self.paths or self.directories or self.journals or self.journal_paths
        return bool(syncs or self.file_actions or self.callbacks)

    def add_tail(self, handle: int, tail: Tail) -> None:
        """Add the unsynced tail of a segment."""
        before = self.tails.get(handle)
        if before is not None:
            tail.prepend(before)
        self.tails[handle] = tail

    def merge(self, later: CommitGroup) -> None:
        """Merge a later group into this one."""
        for handle, tail in later.tails.items():
            self.add_tail(handle, tail)
        self.data |= later.data
        self.paths |= later.paths
        self.directories |= later.directories
        self.journals |= later.journals
        self.journal_paths |= later.journal_paths
        self.file_actions += later.file_actions
        self.callbacks += later.callbacks

    def clear_syncs(self) -> None:
        """Remove all syncs, so that the operating system decides when to write."""
        self.data.clear()
        self._release_tails()
        self.paths.clear()
        self.directories.clear()
        self.journals.clear()
        self.journal_paths.clear()

    def sync(self, files: Files, pool: Executor | None = None, redo: RedoLog | None = None) -> None:
        """Sync everything, then run the file actions.

        Args:
            pool: Executor with SYNC_THREADS threads for many syncs; None to sync in this thread.
            redo: Redo log for small writes to many segments; None to sync the segments.
        Raises:
            OSError: A sync failed. The contents of the files on disk are unknown: a retry proves nothing, because the
                kernel may have dropped the pages it could not write.
        """
        if redo is not None:
            redo.sync_covered_if_due(pool)
        if self.data or self.tails:
            _run_all(pool, files.fdatasync, self._handles_to_sync(redo))
        if self.paths:
            _run_all(pool, partial(sync_path, files), [*self.paths])
        if self.directories:
            _run_all(pool, files.sync_directory, [*self.directories])
        if self.journals:
            _run_all(None, files.fdatasync, [*self.journals])
        if self.journal_paths:
            _run_all(pool, partial(sync_path, files), [*self.journal_paths])
        for action in self.file_actions:
            try:
                action()
            except FileNotFoundError:
                # The file was moved with its directory.
                pass
            except OSError as error:
                # Harmless: an unneeded file remains, or the previous checkpoint stays in use.
                _LOG.warning("Could not clean up the data directory: %s", error)
            except Exception:  # noqa: BLE001 - a bug; what waits for the sync must not wait for ever
                _LOG.exception("internal error while the data directory was cleaned up")

    def _handles_to_sync(self, redo: RedoLog | None) -> list[int]:
        """Return the segments whose ends the redo log has not taken."""
        data, tails = self.data, self.tails
        if data:
            tails = {handle: tail for handle, tail in tails.items() if handle not in data}
        return [*data] if redo is not None and redo.write(tails) else [*data, *tails]

    def commit(self, files: Files, redo: RedoLog | None = None, pool: Executor | None = None) -> None:
        """Sync, run file actions and call callbacks, in this thread and those of a pool if given."""
        self.sync(files, pool, redo)
        self.end()

    @property
    def is_awaited(self) -> bool:
        """Whether end() has something to do."""
        return bool(self.tails or self.callbacks)

    def end(self) -> None:
        """Tell who waits that the group is synced; in the thread that owns the stores."""
        self._release_tails()
        call_each(self.callbacks, "after a sync")

    def _release_tails(self) -> None:
        for tail in self.tails.values():
            tail.release()
        self.tails.clear()


class Copies(Protocol):
    """Other machines that have to have what is synced here."""

    def when_copied(self, callback: Callable[[], None]) -> None:
        """Call back, in any thread and in the order of the calls, once they have all that has been done by now."""

    def wait(self, seconds: float) -> bool:
        """Wait, at the end, until they have all that has been done by now; return False if that takes longer."""


class Committer:
    """Commits groups one after the other in its own thread.

    Args:
        deliver: Schedules a function in the thread that owns the stores, such as call_soon_threadsafe() of an event
            loop.
        on_failure: Called in that thread, once, with the error of a sync. After that nothing is committed and no
            callback is called: the contents of the disk are unknown, so the process must end and recover.
        interval: Minimum seconds between the syncs of two groups.
        redo: The redo log, if used.
        copies: Machines that must have a group, too, before its callbacks are called; None without.
        copies_pause: Without an interval, the longest pause in seconds after a group, for the copies to have it. What
            comes meanwhile would have to wait for them, too, and so it is one group.

    Attributes:
        deliver: Schedules a function in the thread that owns the stores.
    """

    def __init__(
        self,
        files: Files,
        deliver: Callable[[Callable[[], None]], object],
        on_failure: Callable[[OSError], None],
        interval: float = 0.0,
        redo: RedoLog | None = None,
        copies: Copies | None = None,
        copies_pause: float = 0.05,
    ) -> None:
        self._files = files
        self._copies = copies
        self._copies_pause = copies_pause
        self.deliver = deliver
        self._on_failure = on_failure
        self._interval = interval
        self._redo = redo
        self._tasks: SimpleQueue[_Task] = SimpleQueue()
        self._completed: deque[CommitGroup] = deque()
        self._closing = threading.Event()
        #: Ends the pause after a sync: somebody waits for the next one, or the copies have this one.
        self._hurry = threading.Event()
        #: Held where `_failed` is set or read, so that barrier() adds no event after the thread has ended.
        self._failure_lock = threading.Lock()
        self._failed = False
        #: Begins with the first group.
        self._syncer: threading.Thread | None = None

    def submit(self, group: CommitGroup) -> None:
        """Commit a group, merged with those already waiting."""
        self._tasks.put(group)
        if self._syncer is None:
            self._syncer = threading.Thread(target=self._run, name="committer", daemon=True)
            self._syncer.start()

    def barrier(self) -> Callable[[], bool]:
        """Return what waits, in any thread, until the groups submitted by now are synced; False if a sync failed.

        Their callbacks are called later.
        """
        synced = threading.Event()
        with self._failure_lock:
            if self._failed or self._syncer is None:
                synced.set()
            else:
                self._tasks.put(synced)
                self._hurry.set()
        return partial(self._await, synced)

    def _await(self, synced: threading.Event) -> bool:
        synced.wait()
        return not self._failed

    def close(self) -> bool:
        """Commit waiting groups, end the thread and call all callbacks; return whether all syncs succeeded."""
        self._closing.set()
        self._hurry.set()
        self._tasks.put(None)
        if self._syncer is not None:
            self._syncer.join()
        if self._copies is not None:
            self._copies.wait(_COPIES_SECONDS)
        self._drain()
        return not self._failed

    def _run(self) -> None:
        with ThreadPoolExecutor(SYNC_THREADS, "committer") as pool:
            while (task := self._tasks.get()) is not None:
                group, waiting = self._merge(task)
                until = monotonic() + self._interval
                try:
                    self._sync(group, pool)
                except Exception as error:  # noqa: BLE001 - confirms must not wait forever
                    self._fail(error, waiting)
                    return
                if group.is_awaited:
                    if self._copies is None:
                        self._complete(group)
                    else:
                        self._copies.when_copied(partial(self._complete_copied, group))
                        if not self._interval:
                            until = monotonic() + self._copies_pause
                for synced in waiting:
                    synced.set()
                pause = until - monotonic()
                if pause > 0 and not self._closing.is_set():
                    # Groups accumulate meanwhile.
                    self._hurry.wait(pause)
                self._hurry.clear()

    def _complete(self, group: CommitGroup) -> None:
        self._completed.append(group)
        self.deliver(self._drain)

    def _complete_copied(self, group: CommitGroup) -> None:
        self._complete(group)
        if not self._interval:
            self._hurry.set()

    def _merge(self, task: CommitGroup | threading.Event) -> tuple[CommitGroup, list[threading.Event]]:
        """Return one group of a task and all that are waiting, and the events to set after it."""
        group, waiting = (task, []) if isinstance(task, CommitGroup) else (CommitGroup(), [task])
        tasks = self._tasks
        while not tasks.empty():
            later = tasks.get()
            if later is None:
                # Nothing comes after the end.
                tasks.put(None)
                break
            if isinstance(later, CommitGroup):
                group.merge(later)
            else:
                waiting.append(later)
        return group, waiting

    def _sync(self, group: CommitGroup, pool: ThreadPoolExecutor) -> None:
        """Sync a group; retry while no file descriptors are left."""
        tries = 0
        while True:
            try:
                group.sync(self._files, pool, self._redo)
            except OSError as error:
                if not is_shortage(error) or (self._closing.is_set() and tries > _MAX_TRIES_AT_END):
                    raise
                if not tries:
                    _LOG.error("Cannot sync the data directory for now: %s", error)
            else:
                return
            # Files that were already synced may be synced again.
            tries += 1
            sleep(_RETRY_PAUSE)

    def _fail(self, error: Exception, waiting: list[threading.Event]) -> None:
        """End the thread: tell everybody who waits, and the owner."""
        with self._failure_lock:
            self._failed = True
        for synced in waiting + self._merge(CommitGroup())[1]:
            synced.set()
        if not isinstance(error, OSError):
            # A bug. It is unknown what has been synced.
            _LOG.error("The thread that syncs has died", exc_info=error)
            error = OSError(f"the thread that syncs has died: {error!r}")
        self.deliver(partial(self._on_failure, error))

    def _drain(self) -> None:
        """End the completed groups."""
        while self._completed:
            self._completed.popleft().end()


def _run_all(pool: Executor | None, action: Callable[[T], None], items: Sequence[T]) -> None:
    """Call `action` for all items, in several threads if there are many."""
    if pool is None or len(items) <= _PARALLEL_ABOVE:
        _run_each(action, items)
    else:
        parts = [items[start::SYNC_THREADS] for start in range(min(SYNC_THREADS, len(items)))]
        for doing in [pool.submit(_run_each, action, part) for part in parts]:
            doing.result()


def _run_each(action: Callable[[T], None], items: Sequence[T]) -> None:
    for item in items:
        action(item)
