"""One thread that syncs: whatever came up while it was busy is one group the next time."""

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
#: Seconds between two attempts while there are no descriptors, and how many there are once the broker stops.
_PAUSE: Final = 0.1
_TRIES_AT_END: Final = 50


class SyncMode(Enum):
    """When what was written is synced."""

    #: At once; promises wait for it.
    ALWAYS = "always"
    #: From time to time; promises do not wait. A crash of the process loses nothing, that of the machine what was
    #: promised since the last sync.
    INTERVAL = "interval"
    #: When the broker stops. Before that the operating system decides.
    OFF = "off"


class Committer:
    """Commits groups in its own thread, one after the other.

    Args:
        files: The seam to the operating system.
        deliver: Hands a function to the thread that owns the stores, which calls it there; call_soon_threadsafe()
            of an event loop.
        on_failure: Called there, once, with the error of a sync. Nothing is committed after that and no callback is
            called: what the disk holds is not known, so the process has to end and recover.
        interval: Seconds from one group's syncs to the next ones', at least.
        redo: The redo log, if there is one.

    Attributes:
        deliver: Hands a function to the thread that owns the stores.
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
        self._thread = threading.Thread(target=self._run, name="committer", daemon=True)
        self._thread.start()

    def submit(self, group: CommitGroup) -> None:
        """Have a group committed; it is merged with those that wait."""
        with self._condition:
            if self._waiting is None:
                self._waiting = group
            else:
                self._waiting.merge(group)
            self._condition.notify()

    def wait(self) -> None:
        """Wait until all groups have been synced, or one of them could not be; their callbacks are called later."""
        with self._condition:
            self._condition.wait_for(lambda: self._failed or (self._waiting is None and not self._busy))

    def close(self) -> bool:
        """Commit what waits, end the thread, and call all callbacks; tell whether all syncs succeeded."""
        with self._condition:
            self._closing = True
            self._condition.notify()
        self._thread.join()
        self._drain()
        return not self._failed

    def _run(self) -> None:
        with ThreadPoolExecutor(SYNC_THREADS, "committer") as pool:
            while (group := self._next()) is not None:
                started = monotonic()
                try:
                    self._sync(group, pool)
                except Exception as error:  # noqa: BLE001 - whatever it is, promises must not hang for ever
                    self._fail(error)
                    return
                if group.callbacks:
                    self._completed.append(group)
                    self.deliver(self._drain)
                self._note_idle()
                if self._interval:
                    self._rest(started + self._interval)

    def _sync(self, group: CommitGroup, pool: ThreadPoolExecutor) -> None:
        """Sync a group; as long as there are no descriptors to open its files with, promises wait."""
        tries = 0
        while True:
            try:
                group.sync(self._files, pool, self._redo)
            except OSError as error:
                if not is_shortage(error) or (self._closing and tries > _TRIES_AT_END):
                    raise
                if not tries:
                    _LOG.error("Cannot sync the data directory for now: %s", error)
            else:
                return
            # What has been synced so far may be synced again.
            tries += 1
            sleep(_PAUSE)

    def _next(self) -> CommitGroup | None:
        """Wait for a group; None at the end."""
        with self._condition:
            self._condition.wait_for(lambda: self._waiting is not None or self._closing)
            group, self._waiting = self._waiting, None
            self._busy = group is not None
            return group

    def _note_idle(self) -> None:
        with self._condition:
            self._busy = False
            self._condition.notify_all()

    def _rest(self, until: float) -> None:
        """Let groups gather until a time, or until the end."""
        with self._condition:
            self._condition.wait_for(lambda: self._closing, max(0.0, until - monotonic()))

    def _fail(self, error: Exception) -> None:
        self._failed = True
        self._note_idle()
        if not isinstance(error, OSError):
            # A mistake of ours. What was synced is not known either.
            _LOG.error("The thread that syncs has died", exc_info=error)
            error = OSError(f"the thread that syncs has died: {error!r}")
        self.deliver(partial(self._on_failure, error))

    def _drain(self) -> None:
        """Call the callbacks of the groups that are done."""
        while self._completed:
            for callback in self._completed.popleft().callbacks:
                callback()
