"""Snapshots: consistent contents of a data directory at one time, taken without contacting a running broker.

A snapshot ends at a cut, usually the last tick of the event log: everything before it is in the files. Hard links in a
directory of its own keep the files, so that compaction, purges and deletions do not affect readers. Unacknowledged
messages are included; transient messages that exist only in the broker's memory are not.
"""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple, NoReturn

from leveret.storage.directory.directory_format import FORMAT_FILE, DataDirectoryError, DirectoryFormat, read_format
from leveret.storage.directory.queue_names import (
    DELETED_FILE,
    QUEUE_FILE,
    QueueName,
    priorities_in,
    queue_path,
    read_deleted_names,
    read_queue_names,
    store_path,
)
from leveret.storage.disk.files import DiskFiles, Files
from leveret.storage.event_format import EVENT_BYTES, details_name
from leveret.storage.event_log import EventPosition, event_files, file_name
from leveret.storage.format import FORMAT_VERSION
from leveret.storage.recovery.checkpoint import Checkpoint, read_checkpoints
from leveret.storage.snapshots.dead import (
    Cut,
    DeadAtCut,
    base_of,
    bounds_of,
    dead_at,
    last_tick,
    latest_cut,
    oldest_time,
    read_on,
)
from leveret.storage.snapshots.lease import LINKS, TIMEOUT, SnapshotLease, remove_dead_snapshots, take_lease
from leveret.storage.snapshots.segments import (
    Key,
    Known,
    LinkRefusedError,
    SegmentView,
    StaleCutError,
    StoreId,
    StorePaths,
    count_missing,
    link,
    link_errors,
    link_segments,
    read_manifest,
    remove_deleted,
    segment_views,
)


class FileState(NamedTuple):
    """What changes when a file or a directory is changed.

    Attributes:
        inode: Its number.
        size: Its size in bytes.
        changed: When it was last changed, in nanoseconds since 1970 as the file system counts them.
    """

    inode: int
    size: int
    changed: int


def file_state(path: str) -> FileState | None:
    """Return the state of a file or directory; None if it does not exist or cannot be looked at."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return FileState(status.st_ino, status.st_size, status.st_mtime_ns)


class SnapshotMemory:
    """Remembers what snapshots of one data directory have read that seldom changes. The directory is a local one."""

    def __init__(self) -> None:
        self._names: dict[int, QueueName] = {}
        self._deleted: tuple[FileState | None, dict[int, QueueName]] | None = None
        self._checkpoints: tuple[object, list[Checkpoint]] | None = None
        #: What was dead at a position, found from a checkpoint.
        self._dead: DeadAtCut | None = None
        self._base: EventPosition | None = None
        self._position = EventPosition(0, 0)

    def names(self, files: Files, path: str) -> dict[int, QueueName]:
        """Return read_queue_names() of a data directory."""
        self._names = read_queue_names(files, path, self._names)
        return self._names

    def deleted_names(self, files: Files, path: str) -> dict[int, QueueName]:
        """Return read_deleted_names() of a data directory."""
        state = file_state(f"{path}/events/{DELETED_FILE}")
        if self._deleted is None or self._deleted[0] != state:
            self._deleted = state, read_deleted_names(files, path)
        return self._deleted[1]

    def checkpoints(self, files: Files, path: str, read: Callable[[], list[Checkpoint]]) -> list[Checkpoint]:
        """Return the checkpoints of a data directory without their stores.

        Args:
            read: Reads them.
        """
        directory = f"{path}/ckpt"
        # Each is written under a name of its own.
        state = [(name, file_state(f"{directory}/{name}")) for name in files.list_directory(directory)]
        if self._checkpoints is None or self._checkpoints[0] != state:
            self._checkpoints = state, [each._replace(stores={}) for each in read()]
        return self._checkpoints[1]

    def dead_at(
        self, files: Files, directory: str, store_id: bytes, cut: Cut, read: Callable[[], list[Checkpoint]]
    ) -> DeadAtCut:
        """Return what was dead at a cut; the next call may change it.

        Args:
            directory: Path of the event log.
            store_id: ID of the data directory.
            cut: The cut.
            read: Reads the checkpoints.
        """
        base = base_of(self._checkpoints[1], cut) if self._checkpoints is not None else None
        position = base.position if base is not None else None
        if self._dead is None or position != self._base or not self._position <= cut.position:
            self._dead = None
            checkpoints = read()
            whole = base_of(checkpoints, cut)
            dead = dead_at(files, directory, store_id, cut, checkpoints)
            if whole is None or whole.position > cut.position:
                return dead
            self._dead, self._base, self._position = dead, whole.position, cut.position
        else:
            dead, self._dead = self._dead, None
            read_on(dead, files, directory, store_id, self._position, cut)
            self._dead, self._position = dead, cut.position
        return self._dead


#: Seconds to retry until a cut is found whose files all exist.
_TIMEOUT_SECONDS: Final = 20.0
_POLL: Final = 0.01


class SnapshotError(Exception):
    """No snapshot can be taken; the message says why and what to do."""


class NoSuchQueueError(SnapshotError):
    """No queue has the requested name."""


class NoSuchMomentError(SnapshotError):
    """The data directory has no records of the requested time or earlier."""


@dataclass(frozen=True, slots=True)
class StoreView:
    """One priority of a queue.

    Attributes:
        priority: The priority; 0 in a queue without priorities.
        segments: Segments with live messages, in order.
        delivered: Bounds of the ranges of messages delivered before, as in SegmentView.live.
        next_seq: Next sequence number of the store, as far as known.
    """

    priority: int
    segments: list[SegmentView]
    delivered: array[int]
    next_seq: int


@dataclass(frozen=True, slots=True)
class QueueView:
    """A queue at the cut.

    Attributes:
        qid: Number of the queue, never reused.
        vhost: Virtual host.
        name: Queue name.
        durable: Whether the queue is durable.
        stores: Stores by ascending priority.
        kind: ``queue``, or ``exchange`` for the delayed messages of an exchange, or ``deduplication`` for what one
            remembers, or ``offsets`` for the named consumers of a stream.
        is_stream: Whether it is a stream, whose messages stay when they are consumed.
    """

    qid: int
    vhost: str
    name: str
    durable: bool
    stores: list[StoreView] = field(default_factory=list)
    kind: str = "queue"
    is_stream: bool = False


@dataclass(frozen=True, slots=True)
class EventFileView:
    """A file of the event log, up to the cut.

    Attributes:
        path: Path to read.
        file: Start time of the file, from its name.
        end: Offset of the cut in the file, in bytes.
        until: Latest time of its events in microseconds since 1970.
    """

    path: str
    file: int
    end: int
    until: int


class Choice(NamedTuple):
    """What is known when a reader chooses queues.

    Attributes:
        cut: The time of the snapshot.
        names: Names of all queues by number, including deleted ones that still have events.
        wanted: Numbers of those that exist and that the reader wants.
        lease: Lease of the links, just made; None if there are none.
    """

    cut: Cut
    names: Mapping[int, QueueName]
    wanted: Collection[int]
    lease: SnapshotLease | None


@dataclass(frozen=True, slots=True)
class Request:
    """Requested contents of a snapshot.

    Attributes:
        messages: Include segments with live messages.
        events: Include the event log.
        dead_too: Include dead messages, as far as their segments still exist.
        as_of: Use the last cut up to this time, in microseconds since 1970; None for the latest. Messages settled since
            are included as far as their segments still exist.
        wanted: Filter called with virtual host and queue name; None for all queues.
        described: Description of `wanted` for the error if no queue matches; None to allow no match.
        link: Create hard links. Otherwise files are read in place, and reading fails if one is removed.
        purpose: Description of the reader.
        timeout: Seconds without a heartbeat after which the links may be removed.
        kind: ``queue`` or ``exchange``: what the messages are in; empty for both.
        choose: Called when the cut has been found, before any file of a queue is looked at; again if there has to be
            a later cut. Returns the numbers of the queues to include, of those that `wanted` selects. None for all.
        memory: What earlier snapshots of the same local directory have read; None for nothing.
    """

    messages: bool = True
    events: bool = False
    dead_too: bool = False
    as_of: int | None = None
    wanted: Callable[[str, str], bool] | None = None
    described: str | None = None
    link: bool = True
    purpose: str = "reader"
    timeout: float = TIMEOUT
    kind: str = "queue"
    choose: Callable[[Choice], Collection[int]] | None = None
    memory: SnapshotMemory | None = None


@dataclass(slots=True)
class Snapshot:
    """A data directory at one time. Must be closed after reading.

    Attributes:
        store_id: ID of the data directory.
        cut: The time of the snapshot.
        names: Names of all queues by number, including deleted ones that still have events.
        queues: The selected queues that exist.
        events: The event log up to the cut, oldest first.
        lease: Lease of the links; None if there are none.
        damaged_events: Number of unreadable events.
        missing_segments: Number of removed files that may have contained live messages: with as_of, or after a broker
            was killed.
    """

    store_id: bytes
    cut: Cut
    names: Mapping[int, QueueName]
    queues: list[QueueView]
    events: list[EventFileView]
    lease: SnapshotLease | None
    damaged_events: int = 0
    missing_segments: int = 0

    def close(self) -> None:
        """Remove the links."""
        if self.lease is not None:
            self.lease.release()

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def take_snapshot(path: str, request: Request | None = None, files: Files | None = None) -> Snapshot:
    """Take a snapshot of a data directory, whether a broker is running on it or not.

    Args:
        request: Contents of the snapshot; the messages of all queues by default.
        files: The file system interface, if it is not a local directory; then no links are created.
    Raises:
        DataDirectoryError: It is not a data directory, or was written by a newer version.
        NoSuchQueueError: No queue matches the request.
        SnapshotError: There is no cut, or files are removed faster than they can be linked.
        OSError: It cannot be read.
    """
    request = request or Request()
    path = path.rstrip("/") or "/"
    attempt = _SnapshotAttempt(path, request, files or DiskFiles(), request.link and files is None)
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    first: Cut | None = None
    stale: Cut | None = None
    while True:
        try:
            return attempt.run(stale)
        except LinkRefusedError:
            attempt.link = False
        except StaleCutError as error:
            if time.monotonic() < deadline:
                # The missing files were dropped after the cut, so the next cut does not need them.
                stale = attempt.cut
                time.sleep(_POLL)
            elif attempt.strict and attempt.cut is not None and attempt.cut == first:
                # There is no later cut: the broker was killed before its next tick. Accept the missing files.
                attempt.strict, stale = False, None
            else:
                raise SnapshotError(
                    f"{path}: {error}: files are removed faster than linked; let the broker keep its trash longer"
                    if attempt.cut is not None
                    else f"{path}: {error}"
                ) from error
            first = attempt.cut if first is None else first


def read_directory_format(files: Files, path: str) -> DirectoryFormat:
    """Read the file FORMAT of a data directory.

    Raises:
        DataDirectoryError: It is not a data directory, damaged, or was written by a newer version.
    """
    found = read_format(files, path)
    if found is None:
        raise DataDirectoryError(f"{path} is not a data directory of Leveret: it has no file {FORMAT_FILE}")
    if found.is_too_new:
        raise DataDirectoryError(
            f"{path} was written in format {found.format}, and this version reads up to format {FORMAT_VERSION}; "
            "upgrade Leveret where this is run"
        )
    return found


class _SnapshotAttempt:
    """State and steps of take_snapshot()."""

    def __init__(self, path: str, request: Request, files: Files, link: bool) -> None:
        self.path = path
        self.request = request
        self.files = files
        self.link = link
        self.strict = request.as_of is None
        self.format = read_directory_format(files, path)
        self.cut: Cut | None = None
        self.checkpoint_names: list[str] = []
        self.lease: SnapshotLease | None = None
        if link:
            remove_dead_snapshots(path)

    def run(self, stale: Cut | None) -> Snapshot:
        """Take the snapshot at a cut later than `stale`.

        Raises:
            StaleCutError: Not possible yet.
        """
        files, request = self.files, self.request
        cut = self._find_cut(stale)
        self.cut = cut
        names, deleted = self._names()
        wanted = self._wanted(names, deleted)
        try:
            self._take_lease()
            if request.choose is not None:
                chosen = request.choose(Choice(cut, deleted | names, wanted.keys(), self.lease))
                wanted = {qid: wanted[qid] for qid in chosen if qid in wanted}
            keys = [(qid, each) for qid in (wanted if request.messages else ()) for each in self._priorities(qid)]
            linked = {key: link_segments(files, self._paths(*key)) for key in keys}
            event_views = self._link_events(cut) if request.events else []
            known = {key: read_manifest(files, self._paths(*key).directory) for key in keys}
            missing = sum(count_missing(linked[key], known[key], cut.time) for key in keys)
            if missing and self.strict:
                raise StaleCutError(f"{missing} segments are gone")
            dead = self._dead_at(cut) if request.messages else DeadAtCut()
            if self.strict and not all(self._queue_exists(qid) for qid in dead.deleted_later):
                raise StaleCutError("a queue has been deleted")
            queues = {
                qid: QueueView(qid, name.vhost, name.name, name.durable, kind=name.kind, is_stream=name.is_stream)
                for qid, name in wanted.items()
                if qid not in dead.deleted
            }
            for qid, priority in keys:
                if qid in queues:
                    store = self._store_view(StoreId(qid, priority, names[qid].salt or 0), linked, known, dead)
                    queues[qid].stores.append(store)
        except BaseException:
            self._drop_lease()
            raise
        views = list(queues.values())
        return Snapshot(
            self.format.store_id, cut, deleted | names, views, event_views, self.lease, dead.damaged, missing
        )

    def _names(self) -> tuple[dict[int, QueueName], dict[int, QueueName]]:
        """Return the names of existing and of deleted queues."""
        memory = self.request.memory
        read, read_deleted = (
            (read_queue_names, read_deleted_names) if memory is None else (memory.names, memory.deleted_names)
        )
        names = read(self.files, self.path)
        # Read after the existing names: a queue deleted in between was recorded before its directory was removed.
        return names, read_deleted(self.files, self.path)

    def _dead_at(self, cut: Cut) -> DeadAtCut:
        memory, events, store_id = self.request.memory, f"{self.path}/events", self.format.store_id
        if memory is not None:
            return memory.dead_at(self.files, events, store_id, cut, self._checkpoints)
        return dead_at(self.files, events, store_id, cut, self._checkpoints())

    def _store_view(
        self,
        store: StoreId,
        linked: Mapping[tuple[int, int], dict[Key, tuple[str, str]]],
        known: Mapping[tuple[int, int], dict[Key, Known]],
        dead: DeadAtCut,
    ) -> StoreView:
        assert self.cut is not None
        key = store.qid, store.priority
        what = dead.store(*key)
        if not self.request.dead_too:
            remove_deleted(linked[key], known[key], self.cut.time)
        views = segment_views(self.files, linked[key], known[key], store, None if self.request.dead_too else what)
        return StoreView(store.priority, views, bounds_of(what.delivered), what.next_seq)

    def _wanted(self, names: Mapping[int, QueueName], deleted: Mapping[int, QueueName]) -> dict[int, QueueName]:
        request, wanted = self.request, self.request.wanted
        found = {
            qid: name
            for qid, name in names.items()
            if request.kind in ("", name.kind) and (wanted is None or wanted(name.vhost, name.name))
        }
        # Deleted queues still have events.
        there = bool(found) or (
            request.events
            and wanted is not None
            and any(wanted(each.vhost, each.name) for each in deleted.values() if each.kind == "queue")
        )
        if not there and request.described is not None:
            known = ", ".join(sorted({name.name for name in names.values() if name.kind == "queue"})[:10]) or "none"
            raise NoSuchQueueError(f"{self.path} has no queue {request.described}; queues there: {known}")
        return found

    def _find_cut(self, stale: Cut | None) -> Cut:
        """Return the latest cut.

        Raises:
            StaleCutError: It is not later than `stale`, or there is none yet.
        """
        directory, store_id, as_of = f"{self.path}/events", self.format.store_id, self.request.as_of
        names = self.files.list_directory(f"{self.path}/ckpt")
        if stale is None or names != self.checkpoint_names:
            self.checkpoint_names = names
            memory = self.request.memory
            checkpoints = (
                self._checkpoints() if memory is None else memory.checkpoints(self.files, self.path, self._checkpoints)
            )
            cut = latest_cut(self.files, directory, store_id, checkpoints, as_of)
        else:
            cut = last_tick(self.files, directory, store_id, as_of)
        if cut is None:
            self._raise_no_cut()
        if stale is not None and cut <= stale:
            raise StaleCutError("no new cut since some files were removed")
        return cut

    def _checkpoints(self) -> list[Checkpoint]:
        found = read_checkpoints(self.files, f"{self.path}/ckpt", [])
        return [each for each in found if each.store_id == self.format.store_id]

    def _queue_exists(self, qid: int) -> bool:
        return self.files.read_all(f"{queue_path(self.path, qid)}/{QUEUE_FILE}") is not None

    def _raise_no_cut(self) -> NoReturn:
        as_of = self.request.as_of
        if as_of is None:
            raise StaleCutError("it has neither a checkpoint nor a tick: nothing has been written yet")
        oldest = oldest_time(self.files, f"{self.path}/events")
        since = f"; its records begin at {_format_time(oldest)}" if oldest else ""
        raise NoSuchMomentError(f"{self.path} has no records of {_format_time(as_of)} or earlier{since}")

    def _take_lease(self) -> None:
        if not self.link:
            return
        with link_errors():
            self.lease = take_lease(self.path, self.request.purpose, self.request.timeout)

    def _drop_lease(self) -> None:
        if self.lease is not None:
            self.lease.release()
        self.lease = None

    def _priorities(self, qid: int) -> list[int]:
        return priorities_in(self.files.list_directory(queue_path(self.path, qid)))

    def _paths(self, qid: int, priority: int) -> StorePaths:
        directory = store_path(self.path, qid, priority)
        if self.lease is None:
            return StorePaths(directory, None)
        # All in one directory: with thousands of queues, making and removing directories took longest.
        return StorePaths(directory, f"{self.lease.path}/{LINKS}{qid:08x}-{priority:03d}-")

    def _link_events(self, cut: Cut) -> list[EventFileView]:
        directory = f"{self.path}/events"
        numbers = [each for each in event_files(self.files, directory) if each <= cut.position.file]
        views: list[EventFileView] = []
        for at, file in enumerate(numbers):
            path = f"{directory}/{file_name(file)}"
            try:
                size = self.files.size(path)
                if self.lease is not None:
                    path = link(path, f"{self.lease.path}/{file_name(file)}")
                    with suppress(FileNotFoundError):
                        link(f"{directory}/{details_name(file)}", f"{self.lease.path}/{details_name(file)}")
            except FileNotFoundError:
                # Removed by retention.
                continue
            last = file == cut.position.file
            end = min(size, cut.position.offset) if last else size
            if end > EVENT_BYTES:
                views.append(EventFileView(path, file, end, cut.time if last else numbers[at + 1]))
        return views


def _format_time(time_us: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(time_us // 1_000_000))
