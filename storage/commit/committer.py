"""Thread that commits groups. Groups submitted while it is busy are merged into one."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from functools import partial
from queue import SimpleQueue
from time import monotonic, sleep
from typing import Final, TypeAlias

from leveret.storage.commit.group import SYNC_THREADS, CommitGroup
from leveret.storage.commit.redo_log import RedoLog
from leveret.storage.disk.descriptors import is_shortage
from leveret.storage.disk.files import Files

_LOG: Final = logging.getLogger("leveret.storage")
#: Seconds between attempts while no file descriptors are left, and maximum number of attempts during shutdown.
_RETRY_PAUSE: Final = 0.1
_MAX_TRIES_AT_END: Final = 50

#: What the thread gets: a group, an event to set when all groups before it are synced, or None for the end.
_Task: TypeAlias = CommitGroup | threading.Event | None


class SyncMode(Enum):
    """When written data is synced."""

    #: At once. Confirms wait for the sync.
    ALWAYS = "always"
    #: Periodically. Confirms do not wait. A crash of the process loses nothing; a crash of the machine loses data
    #: confirmed since the last sync.
    INTERVAL = "interval"
    #: When the broker stops. Before that, the operating system decides.
    OFF = "off"


class Committer:
    """Commits groups one after the other in its own thread.

    Args:
        files: The file system interface.
        deliver: Schedules a function in the thread that owns the stores, such as call_soon_threadsafe() of an event
            loop.
        on_failure: Called in that thread, once, with the error of a sync. After that nothing is committed and no
            callback is called: the contents of the disk are unknown, so the process must end and recover.
        interval: Minimum seconds between the syncs of two groups.
        redo: The redo log, if used.

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
    ) -> None:
        self._files = files
        self.deliver = deliver
        self._on_failure = on_failure
        self._interval = interval
        self._redo = redo
        self._tasks: SimpleQueue[_Task] = SimpleQueue()
        self._completed: deque[CommitGroup] = deque()
        self._closing = threading.Event()
        #: Held where `_failed` is set or read, so that wait() adds no event after the thread has ended.
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

    def wait(self) -> None:
        """Wait until all groups have been synced or a sync failed. Callbacks are called later."""
        with self._failure_lock:
            if self._failed or self._syncer is None:
                return
            synced = threading.Event()
            self._tasks.put(synced)
        synced.wait()

    def close(self) -> bool:
        """Commit waiting groups, end the thread and call all callbacks; return whether all syncs succeeded."""
        self._closing.set()
        self._tasks.put(None)
        if self._syncer is not None:
            self._syncer.join()
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
                    self._completed.append(group)
                    self.deliver(self._drain)
                for synced in waiting:
                    synced.set()
                if self._interval:
                    # Groups accumulate meanwhile.
                    self._closing.wait(max(0.0, started + self._interval - monotonic()))

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
