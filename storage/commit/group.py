"""A commit group: what must be synced before waiting callbacks may be called."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Final, TypeVar

from leveret.storage.callbacks import call_each
from leveret.storage.commit.redo_log import RedoLog, Tail
from leveret.storage.disk.files import Files

_LOG: Final = logging.getLogger("leveret.storage")
#: Threads that sync in parallel, enough to saturate a disk.
SYNC_THREADS: Final = 8
_PARALLEL_ABOVE: Final = 2
T = TypeVar("T")


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
            files: The file system interface.
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
            _run_all(pool, partial(_sync_path, files), [*self.paths])
        if self.directories:
            _run_all(pool, files.sync_directory, [*self.directories])
        if self.journals:
            _run_all(None, files.fdatasync, [*self.journals])
        if self.journal_paths:
            _run_all(pool, partial(_sync_path, files), [*self.journal_paths])
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


def _sync_path(files: Files, path: str) -> None:
    try:
        handle = files.open(path)
    except FileNotFoundError:
        # Dropped meanwhile: no live messages were left in it.
        return
    try:
        files.fdatasync(handle)
    finally:
        files.close(handle)
