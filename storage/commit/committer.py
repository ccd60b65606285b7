"""Thread that commits groups. Groups submitted while it is busy are merged into one."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from functools import partial
from time import monotonic, sleep
from typing import Final

from leveret.storage.commit.group import SYNC_THREADS, CommitGroup
from leveret.storage.commit.redo_log import RedoLog
from leveret.storage.disk.descriptors import is_shortage
from leveret.storage.disk.files import Files

_LOG: Final = logging.getLogger("leveret.storage")
#: Seconds between attempts while no file descriptors are left, and maximum number of attempts during shutdown.
_RETRY_PAUSE: Final = 0.1
_MAX_TRIES_AT_END: Final = 50


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
        self._condition = threading.Condition()
        self._waiting: CommitGroup | None = None
        self._completed: deque[CommitGroup] = deque()
        self._busy = False
        self._closing = False
        self._failed = False
        #: Begins with the first group.
        self._thread: threading.Thread | None = None

    def submit(self, group: CommitGroup) -> None:
        """Commit a group, merged with those already waiting."""
        with self._condition:
            if self._waiting is None:
                self._waiting = group
            else:
                self._waiting.merge(group)
            self._condition.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="committer", daemon=True)
            self._thread.start()

    def wait(self) -> None:
        """Wait until all groups have been synced or a sync failed. Callbacks are called later."""
        with self._condition:
            self._condition.wait_for(lambda: self._failed or (self._waiting is None and not self._busy))

    def close(self) -> bool:
        """Commit waiting groups, end the thread and call all callbacks; return whether all syncs succeeded."""
        with self._condition:
            self._closing = True
            self._condition.notify()
        if self._thread is not None:
            self._thread.join()
        self._drain()
        return not self._failed

    def _run(self) -> None:
        with ThreadPoolExecutor(SYNC_THREADS, "committer") as pool:
            while (group := self._next()) is not None:
                started = monotonic()
                try:
                    self._sync(group, pool)
                except Exception as error:  # noqa: BLE001 - confirms must not wait forever
                    self._fail(error)
                    return
                if group.callbacks:
                    self._completed.append(group)
                    self.deliver(self._drain)
                self._note_idle()
                if self._interval:
                    self._wait_until(started + self._interval)

    def _sync(self, group: CommitGroup, pool: ThreadPoolExecutor) -> None:
        """Sync a group; retry while no file descriptors are left."""
        tries = 0
        while True:
            try:
                group.sync(self._files, pool, self._redo)
            except OSError as error:
                if not is_shortage(error) or (self._closing and tries > _MAX_TRIES_AT_END):
                    raise
                if not tries:
                    _LOG.error("Cannot sync the data directory for now: %s", error)
            else:
                return
            # Files that were already synced may be synced again.
            tries += 1
            sleep(_RETRY_PAUSE)

    def _next(self) -> CommitGroup | None:
        """Wait for a group; return None when closing."""
        with self._condition:
            self._condition.wait_for(lambda: self._waiting is not None or self._closing)
            group, self._waiting = self._waiting, None
            self._busy = group is not None
            return group

    def _note_idle(self) -> None:
        with self._condition:
            self._busy = False
            self._condition.notify_all()

    def _wait_until(self, until: float) -> None:
        """Wait until a time or until closing, while groups accumulate."""
        with self._condition:
            self._condition.wait_for(lambda: self._closing, max(0.0, until - monotonic()))

    def _fail(self, error: Exception) -> None:
        self._failed = True
        self._note_idle()
        if not isinstance(error, OSError):
            # A bug. It is unknown what has been synced.
            _LOG.error("The thread that syncs has died", exc_info=error)
            error = OSError(f"the thread that syncs has died: {error!r}")
        self.deliver(partial(self._on_failure, error))

    def _drain(self) -> None:
        """Call the callbacks of completed groups."""
        while self._completed:
            for callback in self._completed.popleft().callbacks:
                callback()
