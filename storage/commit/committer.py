"""Commit groups: what must be synced before waiting callbacks may be called, and the thread that commits them.

Groups submitted while it is busy are merged into one.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from enum import Enum
from functools import partial
from queue import SimpleQueue
from time import monotonic, sleep
from typing import Final, Protocol, TypeAlias, TypeVar

from leveret.storage.callbacks import call_each
from leveret.storage.commit.redo_log import RedoLog, Tail
from leveret.storage.disk.descriptors import is_shortage
from leveret.storage.disk.files import Files, sync_path

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
    ) -> None:
        self._files = files
        self._copies = copies
        self.deliver = deliver
        self._on_failure = on_failure
        self._interval = interval
        self._redo = redo
        self._tasks: SimpleQueue[_Task] = SimpleQueue()
        self._completed: deque[CommitGroup] = deque()
        self._closing = threading.Event()
        #: Ends the pause after a sync, as somebody waits for the next one.
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
                started = monotonic()
                try:
                    self._sync(group, pool)
                except Exception as error:  # noqa: BLE001 - confirms must not wait forever
                    self._fail(error, waiting)
                    return
                if group.is_awaited:
                    if self._copies is None:
                        self._complete(group)
                    else:
                        self._copies.when_copied(partial(self._complete, group))
                for synced in waiting:
                    synced.set()
                if self._interval and not self._closing.is_set():
                    # Groups accumulate meanwhile.
                    self._hurry.wait(max(0.0, started + self._interval - monotonic()))
                    self._hurry.clear()

    def _complete(self, group: CommitGroup) -> None:
        self._completed.append(group)
        self.deliver(self._drain)

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
