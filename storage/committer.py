"""One thread that syncs: whatever came up while it was busy is one group the next time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial

from storage.commit_group import CommitGroup
from storage.files import Files


class Committer:
    """Commits groups in its own thread, one after the other.

    Args:
        files: The seam to the operating system.
        deliver: Hands a function to the thread that owns the stores, which calls it there; call_soon_threadsafe()
            of an event loop.
        on_failure: Called there, once, with the error of a sync. Nothing is committed after that and no callback is
            called: what the disk holds is not known, so the process has to end and recover.
    """

    def __init__(
        self,
        files: Files,
        deliver: Callable[[Callable[[], None]], object],
        on_failure: Callable[[OSError], None],
    ) -> None:
        self._files = files
        self._deliver = deliver
        self._on_failure = on_failure
        self._condition = threading.Condition()
        self._waiting: CommitGroup | None = None
        self._completed: deque[CommitGroup] = deque()
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

    def close(self) -> bool:
        """Commit what waits, end the thread, and call all callbacks; tell whether all syncs succeeded."""
        with self._condition:
            self._closing = True
            self._condition.notify()
        self._thread.join()
        self._drain()
        return not self._failed

    def _run(self) -> None:
        while True:
            with self._condition:
                while self._waiting is None and not self._closing:
                    self._condition.wait()
                group, self._waiting = self._waiting, None
            if group is None:
                return
            try:
                group.sync(self._files)
            except OSError as error:
                self._failed = True
                self._deliver(partial(self._on_failure, error))
                return
            if group.callbacks:
                self._completed.append(group)
                self._deliver(self._drain)

    def _drain(self) -> None:
        """Call the callbacks of the groups that are done."""
        while self._completed:
            for callback in self._completed.popleft().callbacks:
                callback()
